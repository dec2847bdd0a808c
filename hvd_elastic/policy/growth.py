"""When another size is worth the standstill that it costs."""

from typing import Final

from hvd_elastic.policy.job_demand import JobDemand

_FIRST_HOLD_SECONDS: Final = 60.0
"""How long a job that has just begun is expected to keep its size."""


def resize_discount(*, age_seconds: float, resizes: int, stall_seconds: float) -> float:
    """How much of a changed job's speed counts, 0 to 1: `max(age - n*delta, 0) / (age + delta)`.

    The share of its life that it has trained if each of its `resizes`, and the next one, cost `stall_seconds`.
    Source: Sia's simulator (SOSP'23), `realloc_factor`, which has it from Pollux (OSDI'21).
    """
    if stall_seconds <= 0:
        return 1.0
    return max(age_seconds - resizes * stall_seconds, 0.0) / (age_seconds + stall_seconds)


def payback_seconds(before: float, after: float, *, stall_grow_seconds: float, stall_shrink_seconds: float) -> float:
    """How long a larger size must be kept so that growing, and shrinking again, has cost nothing.

    `[X(K)*stall_grow + X(K')*stall_shrink] / [X(K') - X(K)]`: `before` is X(K), `after` X(K'), in samples per second.
    Infinite if the job would not be faster. Source: ours.
    """
    if after <= before:
        return float("inf")
    return (before * stall_grow_seconds + after * stall_shrink_seconds) / (after - before)


def expected_hold_seconds(job: JobDemand) -> float:
    """How long the job will probably keep a size: as long as it has kept one until now, in the mean."""
    return (job.age_seconds + _FIRST_HOLD_SECONDS) / (job.resizes + 1)


def growth_pays(job: JobDemand, workers: int) -> bool:
    """Whether the job should grow to so many workers where GPUs are idle. A job that waits has nothing to lose."""
    if job.workers == 0:
        return True
    needed = payback_seconds(
        job.speeds[job.workers],
        job.speeds[workers],
        stall_grow_seconds=job.stall_grow_seconds,
        stall_shrink_seconds=job.stall_shrink_seconds,
    )
    return expected_hold_seconds(job) > needed
