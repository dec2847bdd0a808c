"""Prometheus metrics and the status over HTTP. Off unless a port is asked for."""

import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from hvd_elastic.launcher.status_report import PAUSE_BUCKETS_SECONDS, StatusReport

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(report: StatusReport) -> str:
    """The metrics in Prometheus' text format (version 0.0.4).

    Ten lines that change only here do not need the client library, which the launcher's image may not have.
    """
    return "\n".join(_lines(report)) + "\n"


def serve(report: StatusReport, port: int) -> tuple[int, Callable[[], None]]:
    """Serve `/metrics` and `/status` on all interfaces; the port, and what stops it. Raises OSError."""
    server = ThreadingHTTPServer(("", port), _handler(report))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_address[1]), stop


def _lines(report: StatusReport) -> Iterator[str]:
    status = report.status
    yield from _metric("world_size", "gauge", "Processes of the current world.", [("", status.world_size)])
    yield from _metric("wanted_size", "gauge", "Processes that the hosts would allow.", [("", status.wanted_size)])
    yield from _metric("generation", "gauge", "Number of the current world.", [("", status.generation)])
    yield from _metric("blacklisted_hosts", "gauge", "Hosts left out after a death.", [("", len(status.blacklisted))])
    yield from _metric("resets_total", "counter", "Worlds after the first one.", [("", status.resets)])
    yield from _metric(
        "restarts_total", "counter", "Processes started after the first world.", [("", status.restarted_processes)]
    )
    resizes = [(f'{{cause="{cause}"}}', count) for cause, count in sorted(report.resizes_by_cause.items())]
    yield from _metric("resizes_total", "counter", "Changes of the world by cause.", resizes)
    pauses = tuple(report.pauses)
    buckets = [(f'_bucket{{le="{bound:g}"}}', sum(p <= bound for p in pauses)) for bound in PAUSE_BUCKETS_SECONDS]
    totals: list[tuple[str, float]] = [('_bucket{le="+Inf"}', len(pauses)), ("_sum", sum(pauses))]
    yield from _metric(
        "pause_seconds", "histogram", "How long training stood still.", [*buckets, *totals, ("_count", len(pauses))]
    )


def _metric(name: str, kind: str, help_text: str, values: Sequence[tuple[str, float]]) -> Iterator[str]:
    full = f"hvd_elastic_launcher_{name}"
    yield f"# HELP {full} {help_text}"
    yield f"# TYPE {full} {kind}"
    for suffix, value in values:
        yield f"{full}{suffix} {value:.17g}"


def _handler(report: StatusReport) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = CONTENT_TYPE, ""
            if self.path == "/metrics":
                text = exposition(report)
            elif self.path == "/status":
                kind, text = "application/json", report.text
            body = text.encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """A scrape is no news."""

    return Handler
