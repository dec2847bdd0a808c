"""Serves a training process's Prometheus metrics, at no cost until somebody asks for them.

A world waits for each of its members, so nothing here stands in training's way: the port is bound in a thread (its name
may be looked up in a slow DNS), and prometheus_client is imported at the first scrape.
"""

import functools
import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from hvd_elastic.mpijob.contract import ENV_METRICS, ENV_READY_ADDRESS, WORKER_METRICS_PORT
from hvd_elastic.system.http_server import BoundedHTTPServer
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.training_counts import TrainingCounts

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""The port may be taken for a while, by what an earlier process has left, or for ever, by another pod of this node."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What `generate_latest` writes for names that fit the classic format."""


class MetricsServer:
    """The metrics of this process, on a port of its own."""

    def __init__(self, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._retry_seconds = retry_seconds
        self._counts = TrainingCounts()
        self._has_begun = False

    def start(self, local_rank: int, *, environ: Mapping[str, str] = os.environ) -> bool:
        """Serve on WORKER_METRICS_PORT + `local_rank`, if the job asks for it.

        A worker without prometheus_client trains without metrics, and a port that is taken is tried again: metrics must
        not end a job. Returns whether it began to serve. A second call does nothing.
        """
        if self._has_begun or environ.get(ENV_METRICS, "") in {"", "0"}:
            return False
        if importlib.util.find_spec("prometheus_client") is None:
            return False
        self._has_begun = True
        events.subscribe(self._counts.on_event)
        where = environ.get(ENV_READY_ADDRESS) or "0.0.0.0", WORKER_METRICS_PORT + local_rank  # noqa: S104
        scrape = _scrape(self._counts, local_rank, environ)
        threading.Thread(target=self._serve, args=(where, scrape), name="metrics", daemon=True).start()
        return True

    def _serve(self, where: tuple[str, int], scrape: Callable[[], bytes]) -> None:
        handler = _handler(scrape)
        while True:
            try:
                server = BoundedHTTPServer(where, handler)
            except OSError as error:
                log.debug("no metrics on %s:%d yet: %s", *where, error)
                time.sleep(self._retry_seconds)
            else:
                server.serve_forever()


THIS_PROCESS: Final = MetricsServer()


def _scrape(counts: TrainingCounts, local_rank: int, environ: Mapping[str, str]) -> Callable[[], bytes]:
    """The function that answers a scrape."""

    @functools.cache
    def registry() -> Any:
        from hvd_elastic.trainer.telemetry.worker_metrics import worker_registry

        return worker_registry(counts, local_rank, environ=environ)

    def scrape() -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(registry())

    return scrape


def _handler(scrape: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class MetricsHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = scrape() if self.path == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Scrapes are not logged."""

    return MetricsHandler
