"""The outcomes of one day in several ways, side by side: a row for each way in all, and for each of its jobs."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from hvd_elastic.decide.simulate.outcome import DayOutcome, JobOutcome

_HOUR: Final = 3600.0
ALL_JOBS: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One way, for one job or for all."""

    way: str
    job: str
    """`all`: of all jobs together."""
    goodput: float
    """Useful GPU-time of the GPU-time given."""
    useful_gpu_hours: float
    held_gpu_hours: float
    given_gpu_hours: float
    samples: float
    inference_pods: int
    waiting_p50: float
    """Seconds from an inference pod's creation until it runs, of all of them."""
    waiting_p99: float
    never: int
    """Inference pods that had no room at the end of the day."""
    bought_gpu_hours: float
    """Of the nodes that a cluster autoscaler bought, for all jobs and inference."""
    repeated_steps: int
    resizes: int
    restarts: int
    pauses: int
    paused_seconds: float
    completed: float | None
    """Second of the day; of several jobs the last one's; None: at least one goes on."""
    cost: float | None
    """None: a price is not known."""


def compared(outcomes: Iterable[DayOutcome]) -> list[ComparedRow]:
    """The rows of all ways. A single job has no row of its own: it is `all`."""
    return [
        row
        for outcome in outcomes
        for row in (
            _row(outcome, ALL_JOBS, outcome.jobs),
            *(_row(outcome, job.name, [job]) for job in outcome.jobs if len(outcome.jobs) > 1),
        )
    ]


def comparison_csv(rows: Sequence[ComparedRow]) -> str:
    """All rows with a header. What is None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(ComparedRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def as_plain(outcomes: Iterable[DayOutcome]) -> list[dict[str, Any]]:
    """All that is known, for programs: the changes of size, too. Jobs that never end have `completed: null`."""
    return [
        {
            "way": outcome.way.value,
            "source": outcome.source,
            "seconds": outcome.seconds,
            "jobs": [_plain_job(job) for job in outcome.jobs],
            "inference": asdict(outcome.inference),
            "goodput": outcome.goodput,
            "bought": outcome.bought,
        }
        for outcome in outcomes
    ]


def _plain_job(job: JobOutcome) -> dict[str, Any]:
    values = {column.name: getattr(job, column.name) for column in fields(JobOutcome)}
    return values | {"sizes": [asdict(change) for change in job.sizes.changes()]}


def _row(outcome: DayOutcome, name: str, jobs: Sequence[JobOutcome]) -> ComparedRow:
    given, useful = sum(job.given for job in jobs), sum(job.useful for job in jobs)
    ends = [job.completed for job in jobs if job.completed is not None]
    costs = [job.cost for job in jobs if job.cost is not None]
    return ComparedRow(
        way=outcome.way.value,
        job=name,
        goodput=useful / given if given else 1.0,
        useful_gpu_hours=useful / _HOUR,
        held_gpu_hours=sum(job.held for job in jobs) / _HOUR,
        given_gpu_hours=given / _HOUR,
        samples=sum(job.samples for job in jobs),
        inference_pods=outcome.inference.pods,
        waiting_p50=outcome.inference.p50,
        waiting_p99=outcome.inference.p99,
        never=outcome.inference.never,
        bought_gpu_hours=outcome.bought / _HOUR,
        repeated_steps=sum(job.repeated_steps for job in jobs),
        resizes=sum(job.resizes for job in jobs),
        restarts=sum(job.restarts for job in jobs),
        pauses=sum(job.pauses for job in jobs),
        paused_seconds=sum(job.paused_seconds for job in jobs),
        completed=max(ends) if len(ends) == len(jobs) and ends else None,
        cost=sum(costs) if len(costs) == len(jobs) and costs else None,
    )
