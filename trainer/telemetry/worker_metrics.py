"""Prometheus metrics of a training process: counted from events, or read when Prometheus scrapes them.

An event costs a few additions. Checkpoints and GPUs are read only in the scrape thread. Nothing here is imported or
started unless the job asks for it (`contract.ENV_METRICS`).
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hvd_elastic.mpijob.contract import ENV_METRICS, ENV_READY_ADDRESS, WORKER_METRICS_PORT
from hvd_elastic.trainer.checkpoint import SaveCounts
from hvd_elastic.trainer.checkpoint.checkpoints import saves_of_this_process
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.gpu_figures import GpuFigures, Gpus

log = logging.getLogger(__name__)

PREFIX: Final = "hvd_elastic_worker_"
_STEP_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class WorkerMetrics:
    """Metrics that are counted from events. `on_event` is an `events.Listener`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._step_seconds = Histogram(
            f"{PREFIX}step_seconds", "From commit to commit.", buckets=_STEP_BUCKETS, registry=registry
        )
        self._commits = Counter(f"{PREFIX}commits", "Commits made by this process.", registry=registry)
        self._samples = Counter(f"{PREFIX}samples", "Samples of all workers between commits.", registry=registry)
        self._rate = Gauge(f"{PREFIX}samples_per_second", "Of all workers, at the last commit.", registry=registry)
        self._step = Gauge(f"{PREFIX}step", "Commits since the job began.", registry=registry)
        self._epoch = Gauge(f"{PREFIX}epoch", "The epoch that is trained.", registry=registry)
        self._size = Gauge(f"{PREFIX}world_size", "Processes that train together.", registry=registry)
        self._rank = Gauge(f"{PREFIX}rank", "Rank of this process.", registry=registry)
        self._pauses = Counter(f"{PREFIX}pauses", "Times training stood still.", ["cause"], registry=registry)
        self._pause_seconds = Counter(
            f"{PREFIX}pause_seconds", "Time training stood still.", ["cause"], registry=registry
        )
        for cause in events.Cause:
            self._pauses.labels(cause.value)
            self._pause_seconds.labels(cause.value)
        self._position: tuple[object, int] = (None, 0)

    def on_event(self, event: events.Event) -> None:
        """Update the metrics from one event."""
        self._size.set(_number(event["size"]))
        self._rank.set(_number(event["rank"]))
        self._step.set(_number(event["step"]))
        match event["event"]:
            case events.Kind.STEP:
                self._count_step(event)
            case events.Kind.RESET:
                cause = str(event["cause"])
                self._pauses.labels(cause).inc()
                self._pause_seconds.labels(cause).inc(_number(event["seconds"]))
            case events.Kind.EPOCH:
                self._epoch.set(_number(event["epoch"]))

    def _count_step(self, event: events.Event) -> None:
        self._commits.inc()
        seconds = _number(event.get("seconds"))
        self._step_seconds.observe(seconds)
        position = event.get("samples")
        if isinstance(position, int):
            epoch, before = self._position
            taken = position - before if epoch == event.get("epoch") else position
            self._position = event.get("epoch"), position
            if taken >= 0:  # negative after going back to a commit, which also goes back in the data
                self._samples.inc(taken)
                self._rate.set(taken / seconds if seconds > 0 else 0.0)


class CheckpointCollector:
    """Metrics of the durable tier on rank 0, read at each scrape."""

    def __init__(self, counts: Callable[[], SaveCounts | None], wall: Callable[[], float] = time.time) -> None:
        self._counts, self._wall = counts, wall

    def collect(self) -> Iterator[Metric]:
        """Yield nothing on a process that is not the writer."""
        counts = self._counts()
        if counts is None:
            return
        saves = CounterMetricFamily(f"{PREFIX}checkpoints", "Durable checkpoints, by outcome.", labels=["outcome"])
        saves.add_metric(["durable"], counts.durable)
        saves.add_metric(["failed"], counts.failed)
        yield saves
        yield _gauge("checkpoint_duration_seconds", "Of the last finished save.", counts.seconds)
        yield _gauge("checkpoint_size_bytes", "Of the last finished save.", counts.size_bytes)
        if counts.durable_time is not None and counts.durable_step is not None:
            lag = max(0.0, self._wall() - counts.durable_time)
            yield _gauge("checkpoint_lag_seconds", "Age of the newest durable checkpoint.", lag)
            yield _gauge("checkpoint_step", "Step of the newest durable checkpoint.", counts.durable_step)


class GpuCollector:
    """Metrics of this process's GPU, read from NVML at each scrape."""

    def __init__(self, gpus: Gpus, index: int | None) -> None:
        self._gpus, self._index = gpus, index

    def collect(self) -> Iterator[Metric]:
        """Yield nothing without a GPU, and leave out a figure that the GPU does not report."""
        found = list(self._gpus.read(self._index))
        for field in fields(GpuFigures):
            family = GaugeMetricFamily(f"{PREFIX}gpu_{field.name}", "See NVML.", labels=["gpu"])
            for gpu in found:
                value = getattr(gpu, field.name)
                if isinstance(value, int | float):
                    family.add_metric([gpu.uuid], value)
            if family.samples:
                yield family


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", what, value=value)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


_server: Any = None


def serve(local_rank: int, *, environ: Mapping[str, str] = os.environ) -> int | None:
    """Serve the metrics of this process if the job asks for it. Returns the port, or None. A second call does nothing.

    The port is WORKER_METRICS_PORT + `local_rank`. A port in use is logged but is not an error: metrics must not end a
    job.
    """
    global _server
    if _server is not None or environ.get(ENV_METRICS, "") in {"", "0"}:
        return None
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    registry.register(CheckpointCollector(saves_of_this_process))
    registry.register(GpuCollector(Gpus(environ), local_rank))
    port = WORKER_METRICS_PORT + local_rank
    try:
        _server, _ = start_http_server(port, environ.get(ENV_READY_ADDRESS) or "0.0.0.0", registry)  # noqa: S104
    except OSError as error:
        log.warning("no metrics on port %d: %s", port, error)
        return None
    events.subscribe(metrics.on_event)
    return port
