"""Checks of the numbers of workers and of what depends on them."""

from collections.abc import Iterator

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.priorityclasses.problem import Problem

_LONGEST_LABEL = 63


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks the order of sizes, the batch for these sizes, durations, and the length of worker names."""
    yield from _order(spec)
    yield from _batch(spec)
    yield from _durations(spec)
    last = f"{spec.name}-worker-{spec.workers.max - 1}"
    if len(last) > _LONGEST_LABEL:
        yield Problem(
            path="name",
            value=spec.name,
            what=f"names the last worker {last}, longer than the {_LONGEST_LABEL} characters of a host name",
            way_out="shorten it",
        )


def _order(spec: JobSpec) -> Iterator[Problem]:
    workers = spec.workers
    if workers.min > workers.start:
        what = f"is above workers.start {workers.start}"
        yield Problem(path="workers.min", value=workers.min, what=what, way_out="lower it, or raise workers.start")
    if workers.start > workers.max:
        what = f"is above workers.max {workers.max}"
        yield Problem(path="workers.start", value=workers.start, what=what, way_out="lower it, or raise workers.max")
    if workers.floor > workers.max:
        what = f"is above workers.max {workers.max}"
        yield Problem(path="workers.floor", value=workers.floor, what=what, way_out="lower it, or raise workers.max")
    for key in ("min", "start", "max"):
        size = getattr(workers, key)
        if workers.sizes and size not in workers.sizes:
            what = f"is not in workers.sizes {sorted(set(workers.sizes))}"
            yield Problem(path=f"workers.{key}", value=size, what=what, way_out="write one of them, or leave it out")


def _batch(spec: JobSpec) -> Iterator[Problem]:
    batch, most = spec.batch, spec.workers.max * spec.workers.slots
    if batch.global_ is not None and batch.per_worker is not None:
        what = "contradicts batch.global: either the whole batch is constant, or each process's part of it"
        yield Problem(path="batch.per_worker", value=batch.per_worker, what=what, way_out="keep one of them")
    if batch.learning_rate is not None and batch.per_worker is None:
        what = "needs batch.per_worker: with a constant global batch the learning rate stays as it is"
        yield Problem(path="batch.learning_rate", value=batch.learning_rate, what=what, way_out="set batch.per_worker")
    if batch.global_ is not None and batch.global_ < most:
        what = f"is less than one sample for each of {most} processes"
        yield Problem(path="batch.global", value=batch.global_, what=what, way_out=f"write {most} or more")


def _durations(spec: JobSpec) -> Iterator[Problem]:
    positive = {
        "elastic_timeout": spec.elastic_timeout,
        "gloo_timeout": spec.gloo_timeout,
        "deadline": spec.deadline,
        "workers.grace": spec.workers.grace,
        "checkpoint.every": spec.checkpoint.every if spec.checkpoint else None,
    }
    for path, seconds in positive.items():
        if seconds == 0:
            yield Problem(path=path, value=0, what="is too short", way_out="write 1 or more")
    shortest, longest = spec.cooldown
    if shortest > longest:
        what = "has a shortest time that is above the longest"
        yield Problem(path="cooldown", value=list(spec.cooldown), what=what, way_out=f"write [{longest}, {shortest}]")
