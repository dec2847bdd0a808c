"""What inference leaves to training, and the most that jobs can make of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.workload import SimulatedJob
from hvd_elastic.policy.allowed_sizes import largest_size
from hvd_elastic.policy.division import GpuClaim, divide


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleStretch:
    """Some seconds of a day in which as many GPUs are idle."""

    begin: float
    end: float
    gpus: int


def idle_stretches(cluster: ClusterDay) -> Iterator[IdleStretch]:
    """A day without training, from its beginning to its end. It is played as far as it is read."""
    begin, gpus = 0.0, 0
    for now in cluster.moments(cluster.seconds):
        if cluster.lendable != gpus:
            if now > begin:
                yield IdleStretch(begin=begin, end=now, gpus=gpus)
            begin, gpus = now, cluster.lendable
    yield IdleStretch(begin=begin, end=cluster.seconds, gpus=gpus)


def best_division(jobs: Sequence[SimulatedJob], gpus: int) -> tuple[int, ...]:
    """Workers of each job so that as many GPUs as can be are used, and where there is a choice, to the greatest gain.

    Where jobs train with some sizes only, to the greatest gain alone.

    First each job that fits gets its min, the weightiest and smallest first; then the worker with the greatest marginal
    gain is added, again and again (F7 of Voda's scheduler, for concave speeds).
    """
    workers = [0] * len(jobs)
    order = sorted(range(len(jobs)), key=lambda number: (-jobs[number].weight, jobs[number].min * jobs[number].gpus))
    for number in order:
        needed = jobs[number].min * jobs[number].gpus
        if needed <= gpus:
            workers[number] = jobs[number].min
            gpus -= needed
    if any(job.sizes for job in jobs):
        return _divided(jobs, workers, gpus)
    gains = [(-_gain(jobs[number], workers[number]), number) for number in order if workers[number]]
    heapify(gains)
    while gains and gpus:
        number = gains[0][1]
        job = jobs[number]
        if workers[number] < job.max and job.gpus <= gpus:
            workers[number] += 1
            gpus -= job.gpus
            heapreplace(gains, (-_gain(job, workers[number]), number))
        else:
            heappop(gains)
    return tuple(workers)


def _divided(jobs: Sequence[SimulatedJob], mins: Sequence[int], spare: int) -> tuple[int, ...]:
    """From one allowed size to the next it takes several workers, so the order of gains need not be the best.

    `mins`: of the jobs that fit. `spare`: GPUs beyond these.
    """
    claims = {str(number): _claim(job) for number, job in enumerate(jobs) if mins[number]}
    found = divide(claims, spare + sum(least * job.gpus for least, job in zip(mins, jobs, strict=True)))
    return tuple(found.get(str(number), 0) for number in range(len(jobs)))


def _claim(job: SimulatedJob) -> GpuClaim:
    speeds = [job.speeds[largest_size(job.sizes, workers)] for workers in range(job.max + 1)]
    worth = tuple(job.weight * speed / job.speeds[job.max] for speed in speeds)
    return GpuClaim(gpus=job.gpus, least=job.min, most=job.max, worth=worth)


def _gain(job: SimulatedJob, workers: int) -> float:
    """Of one worker more, for each GPU, as a part of what the job can reach."""
    if workers >= job.max:
        return 0.0
    return job.weight * (job.speeds[workers + 1] - job.speeds[workers]) / (job.speeds[job.max] * job.gpus)
