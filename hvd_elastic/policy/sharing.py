"""How many workers each of several jobs should have.

    jobs ──► admitted: min first ──► the best division, and the best without a transfer ──► the first, where it pays

A job's workers are worth `useful_gpus`, so jobs whose samples differ can be compared, and the sum is goodput. Nothing
follows from the order of the jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hvd_elastic.policy.allowed_sizes import largest_size
from hvd_elastic.policy.division import GpuClaim, divide
from hvd_elastic.policy.growth import expected_hold_seconds, growth_pays, resize_discount
from hvd_elastic.policy.job_demand import JobDemand

TRANSFER_SECONDS: Final = 30.0
"""How long a GPU trains nobody while it passes from one job to another: the drain, and the new worker's start."""
LEAST_GAIN: Final = 0.01
"""Of the useful GPUs: less is within the noise of measured speeds, and no reason to move workers."""
_TIRING: Final = 4.0
"""Resizes after which a size is trusted half as long."""

Division = Mapping[str, int]
"""Workers by the job's name."""


def useful_gpus(job: JobDemand, workers: int) -> float:
    """What so many workers are worth: the GPUs that would do the same work at the efficiency of `min` workers.

    Times the job's weight. 0 for 0 workers. Surplus workers are worth nothing.
    """
    if workers <= 0:
        return 0.0
    unit, size = job.speeds[job.min], largest_size(job.sizes, workers)
    return job.weight * job.gpus * (job.min * job.speeds[size] / unit if unit > 0 else size)


def most_workers(job: JobDemand) -> int:
    """The most that `max`, `quota` and `sizes` allow."""
    most = job.max if job.quota is None else min(job.max, job.quota // max(1, job.gpus))
    return largest_size(job.sizes, most)


def share(jobs: tuple[JobDemand, ...], gpus: int) -> Division:
    """The workers that each job should ask for, when all of them together may have so many GPUs.

    Each job gets nothing, or from `min` to `max` within its quota, and one of its `sizes`. Every job gets its `min`
    before one gets more; if there are too few GPUs, those that train come first, then weight, then age. What is left
    goes where a GPU is worth most (Voda scheduler, `ffdl_optimizer.go`), but a worker passes from one job to another
    only if that pays back what it costs, within the time for which the jobs are expected to keep their sizes.
    """
    admitted = _admitted(jobs, gpus)
    best = divide({job.name: _claim(job, job.min, most_workers(job)) for job in admitted}, gpus)
    kept = _without_transfer(admitted, gpus)
    chosen = best if _pays(admitted, kept, best) else kept
    return {job.name: chosen.get(job.name, 0) for job in jobs}


def _admitted(jobs: Iterable[JobDemand], gpus: int) -> Sequence[JobDemand]:
    """The jobs that get their min, by name."""
    admitted = []
    for job in sorted(jobs, key=lambda job: (job.workers < job.min, -job.weight, -job.age_seconds, job.name)):
        if most_workers(job) >= job.min and job.min * job.gpus <= gpus:
            admitted.append(job)
            gpus -= job.min * job.gpus
    return sorted(admitted, key=lambda job: job.name)


def _without_transfer(jobs: Sequence[JobDemand], gpus: int) -> Division:
    """The best that comes of the present division if no job gives a worker to another.

    Idle GPUs are given away, to jobs for which growing pays. Where there are too few, the jobs that lose least shrink.
    """
    present = {job.name: max(job.min, largest_size(job.sizes, min(job.wanted, most_workers(job)))) for job in jobs}
    if sum(present[job.name] * job.gpus for job in jobs) > gpus:
        return divide({job.name: _claim(job, job.min, present[job.name]) for job in jobs}, gpus)
    return divide({job.name: _claim(job, present[job.name], _grown(job, present[job.name])) for job in jobs}, gpus)


def _grown(job: JobDemand, present: int) -> int:
    """The most workers to which the job should grow with idle GPUs."""
    most = most_workers(job)
    larger = [size for size in job.sizes or range(most + 1) if present < size <= most]
    return most if any(growth_pays(job, size) for size in larger) else present


def _claim(job: JobDemand, least: int, most: int) -> GpuClaim:
    worth = tuple(useful_gpus(job, workers) for workers in range(most + 1))
    return GpuClaim(gpus=max(1, job.gpus), least=least, most=most, worth=worth)


def _pays(jobs: Sequence[JobDemand], kept: Division, best: Division) -> bool:
    """Whether the best division is worth the way to it."""
    changed = [job for job in jobs if best[job.name] != kept[job.name]]
    gain = sum(_discounted(job, best[job.name]) - useful_gpus(job, kept[job.name]) for job in changed)
    if not changed or gain < LEAST_GAIN * sum(useful_gpus(job, kept[job.name]) for job in jobs):
        return False
    cost = sum(_cost(job, kept[job.name], best[job.name]) for job in changed)
    return gain * min(map(_patience_seconds, changed)) > cost


def _patience_seconds(job: JobDemand) -> float:
    """The time in which a transfer must pay: what the job's size has lasted is what it will last.

    Each resize so far shortens it, so noise that lasts for ever moves workers ever more seldom, by the root of time. A
    job that inference resizes often loses nothing by that: what it gets back goes where it is worth most anyway.
    """
    lasted = min(job.since_resize_seconds, job.age_seconds)
    return max(expected_hold_seconds(job) / (job.resizes + 1), lasted / (1 + job.resizes / _TIRING))


def _discounted(job: JobDemand, workers: int) -> float:
    stall = max(job.stall_grow_seconds, job.stall_shrink_seconds) if job.workers else 0.0
    return useful_gpus(job, workers) * resize_discount(
        age_seconds=job.age_seconds, resizes=job.resizes, stall_seconds=stall
    )


def _cost(job: JobDemand, before: int, after: int) -> float:
    """Useful GPU-seconds that a change costs a job that trains: it stands still, and what it gives idles on the way."""
    if not job.workers:
        return 0.0
    worth = useful_gpus(job, before)
    if after > before:
        return job.stall_grow_seconds * worth
    return job.stall_shrink_seconds * worth + TRANSFER_SECONDS * (worth - useful_gpus(job, after))
