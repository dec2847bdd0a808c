"""Serves a training process's Prometheus metrics, at no cost until somebody asks for them.

A world waits for each of its members, so nothing here stands in training's way: the port is bound in a thread (its name
may be looked up in a slow DNS), and prometheus_client is imported at the first scrape.
"""

import functools
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from hvd_elastic.mpijob.contract import ENV_METRICS, ENV_METRICS_PORT, ENV_READY_ADDRESS, WORKER_METRICS_PORT
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.system.http_server import RoutesServer, ServedPage
from hvd_elastic.system.untrusted_values import decimal_count
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.training_counts import TrainingCounts

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""The port may be taken for a while, by what an earlier process has left, or for ever, by another pod of this node."""


class MetricsServer:
    """The metrics of this process, on a port of its own."""

    def __init__(self, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._retry_seconds = retry_seconds
        self._counts = TrainingCounts()
        self._has_begun = False

    def start(self, local_rank: int, *, environ: Mapping[str, str] = os.environ) -> bool:
        """Serve on WORKER_METRICS_PORT (or ENV_METRICS_PORT) + `local_rank`, if the job asks for it.

        A worker without prometheus_client trains without metrics, and a port that is taken is tried again: metrics must
        not end a job. Returns whether it began to serve. A second call does nothing.
        """
        if self._has_begun or environ.get(ENV_METRICS, "") in {"", "0"}:
            return False
        if importlib.util.find_spec("prometheus_client") is None:
            return False
        self._has_begun = True
        events.subscribe(self._counts.on_event)
        first = decimal_count(environ.get(ENV_METRICS_PORT, "")) or WORKER_METRICS_PORT
        where = environ.get(ENV_READY_ADDRESS) or "", first + local_rank
        scrape = _scrape(self._counts, local_rank, environ)
        start_thread("metrics", lambda: self._serve(where, scrape), log=log)
        return True

    def _serve(self, where: tuple[str, int], scrape: Callable[[], ServedPage]) -> None:
        address, port = where
        while True:
            try:
                server = RoutesServer({"/metrics": scrape}, address=address, port=port)
            except OSError as error:
                log.debug("no metrics on %s:%d yet: %s", *where, error)
                time.sleep(self._retry_seconds)
            else:
                with server:
                    server.serve_forever()


THIS_PROCESS: Final = MetricsServer()
"""A process has one port and one stream of events, however often its script calls functions of `elastic.run`."""


def _scrape(counts: TrainingCounts, local_rank: int, environ: Mapping[str, str]) -> Callable[[], ServedPage]:

    @functools.cache
    def registry() -> Any:
        from hvd_elastic.trainer.telemetry.worker_metrics import worker_registry

        return worker_registry(counts, local_rank, environ=environ)

    def scrape() -> ServedPage:
        from prometheus_client import generate_latest

        return ServedPage(body=generate_latest(registry()))

    return scrape
