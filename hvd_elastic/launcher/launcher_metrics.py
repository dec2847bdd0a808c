"""Prometheus metrics and the status over HTTP. Imported only where a port is asked for: it needs prometheus_client."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hvd_elastic.launcher.core.resize_causes import CauseKind
from hvd_elastic.launcher.status_report import StatusReport
from hvd_elastic.system.http_server import BoundedHTTPServer

PAUSE_BUCKETS_SECONDS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What `generate_latest` writes for names that fit the classic format. Newer releases of prometheus_client announce
version 1.0.0 as their latest, which scrapers of today may not know."""

_PREFIX: Final = "hvd_elastic_launcher"


class StatusCollector(Collector):
    """Reads the report at each scrape."""

    def __init__(self, report: StatusReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        status = self._report.status
        yield _gauge("world_size", "Processes of the current world.", status.world_size)
        yield _gauge("wanted_size", "Processes that the hosts would allow.", status.wanted_size)
        yield _gauge("generation", "Number of the current world.", status.generation)
        yield _gauge("blacklisted_hosts", "Hosts left out after a death.", len(status.blacklisted))
        yield _counter("resets_total", "Worlds after the first one.", status.resets)
        yield _counter("restarts_total", "Processes started after the first world.", status.restarted_processes)
        yield self._resizes()
        yield self._pauses()

    def _resizes(self) -> Metric:
        resizes = CounterMetricFamily(f"{_PREFIX}_resizes_total", "Changes of the world by cause.", labels=["cause"])
        for kind in CauseKind:  # a series that begins with its first increase would hide it from increase()
            resizes.add_metric([kind.value], self._report.resizes_by_cause[kind])
        return resizes

    def _pauses(self) -> Metric:
        pauses = tuple(self._report.pauses)
        buckets = [(f"{bound:g}", float(sum(p <= bound for p in pauses))) for bound in PAUSE_BUCKETS_SECONDS]
        return HistogramMetricFamily(
            f"{_PREFIX}_pause_seconds",
            "From the first notification or death until all members of a new world have arrived.",
            buckets=[*buckets, ("+Inf", float(len(pauses)))],
            sum_value=sum(pauses),
        )


def status_registry(report: StatusReport) -> CollectorRegistry:
    """A registry of its own, with nothing in it but the report's metrics."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(report))
    return registry


def serve_metrics(report: StatusReport, port: int) -> tuple[int, Callable[[], None]]:
    """Serve `/metrics` and `/status` on all interfaces. Raises OSError.

    Args:
        report: what is served.
        port: 0 takes any free port.

    Returns:
        The port, and a function that stops the server.
    """
    server = BoundedHTTPServer(("", port), _handler(report))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_address[1]), stop


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", documentation, value=value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", documentation, value=value)


def _handler(report: StatusReport) -> type[BaseHTTPRequestHandler]:
    registry = status_registry(report)

    class StatusHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = CONTENT_TYPE, b""
            if self.path == "/metrics":
                body = generate_latest(registry)
            elif self.path == "/status":
                kind, body = "application/json", report.text.encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Scrapes are not logged."""

    return StatusHandler
