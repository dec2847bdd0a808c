"""Prometheus metrics of a training process, made when Prometheus scrapes them: from counts, checkpoints and GPUs.

Only `metrics_server` imports this, at the first scrape: the import of prometheus_client takes too long for a start.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from hvd_elastic.trainer.checkpoint import SaveCounts
from hvd_elastic.trainer.checkpoint.checkpoints import saves_of_this_process
from hvd_elastic.trainer.telemetry.figures_file import loss_of_this_process
from hvd_elastic.trainer.telemetry.gpu_figures import GpuFigures, Gpus
from hvd_elastic.trainer.telemetry.training_counts import STEP_BUCKETS_SECONDS, TrainingCounts

PREFIX: Final = "hvd_elastic_worker_"


def worker_registry(
    counts: TrainingCounts, local_rank: int, *, environ: Mapping[str, str] = os.environ
) -> CollectorRegistry:
    """A registry with the metrics of this process, and nothing else."""
    registry = CollectorRegistry()
    registry.register(TrainingCollector(counts, loss_of_this_process))
    registry.register(CheckpointCollector(saves_of_this_process))
    registry.register(GpuCollector(Gpus(environ), local_rank))
    return registry


class TrainingCollector:
    """Metrics of training itself."""

    def __init__(self, counts: TrainingCounts, loss: Callable[[], float | None]) -> None:
        self._counts, self._loss = counts, loss

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield self._step_seconds()
        yield _counter("commits", "Commits made by this process.", counts.commits)
        yield _counter("samples", "Samples of all workers between commits.", counts.samples)
        yield _gauge("samples_per_second", "Of all workers, at the last commit.", counts.samples_per_second)
        yield _gauge("step", "Commits since the job began.", counts.step)
        yield _gauge("epoch", "The epoch that is trained.", counts.epoch)
        yield _gauge("world_size", "Processes that train together.", counts.size)
        yield _gauge("rank", "Rank of this process.", counts.rank)
        yield _by_cause("pauses", "Times training stood still.", counts.pauses)
        yield _by_cause("pause_seconds", "Time training stood still.", counts.pause_seconds)
        loss = self._loss()
        if loss is not None:
            yield _gauge("loss", "Last loss that the script has logged, on rank 0.", loss)

    def _step_seconds(self) -> Metric:
        bounds = [*map(str, STEP_BUCKETS_SECONDS), "+Inf"]
        buckets = list(zip(bounds, itertools.accumulate(self._counts.steps_by_bucket), strict=True))
        name, total = f"{PREFIX}step_seconds", self._counts.step_seconds
        return HistogramMetricFamily(name, "From commit to commit.", buckets=buckets, sum_value=total)


class CheckpointCollector:
    """Metrics of the durable tier on rank 0."""

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
        yield _gauge("checkpoint_writer_seconds", "Since this process became the writer.", counts.writer_seconds)
        if counts.interval_seconds is not None:
            yield _gauge("checkpoint_interval_seconds", "From save to save, as it is now.", counts.interval_seconds)
        if counts.durable_time is not None and counts.durable_step is not None:
            lag = max(0.0, self._wall() - counts.durable_time)
            yield _gauge("checkpoint_lag_seconds", "Age of the newest durable checkpoint.", lag)
            yield _gauge("checkpoint_step", "Step of the newest durable checkpoint.", counts.durable_step)


class GpuCollector:
    """Metrics of this process's GPU, read from NVML."""

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


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}{name}", what, value=value)


def _by_cause(name: str, what: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}{name}", what, labels=["cause"])
    for cause, value in values.items():
        family.add_metric([cause], value)
    return family
