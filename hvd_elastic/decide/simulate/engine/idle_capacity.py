"""What inference leaves to training, and the most that jobs can make of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.outcome import InferenceWaiting
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCapacity:
    """A day without training."""

    steps: tuple[tuple[float, int], ...]
    """From this second on so many GPUs are idle."""
    waiting: InferenceWaiting
    """Inference's, where nobody is in its way."""


def idle_capacity(day: Day, stalls: Stalls) -> IdleCapacity:
    """Play the day without training."""
    cluster = ClusterDay(day, stalls)
    steps: list[tuple[float, int]] = [(0.0, 0)]

    def note(now: float) -> None:
        if steps[-1][0] == now:
            steps[-1] = now, cluster.lendable
        elif steps[-1][1] != cluster.lendable:
            steps.append((now, cluster.lendable))

    cluster.on_change = note
    cluster.play(lambda _part: None)
    return IdleCapacity(steps=tuple(steps), waiting=cluster.waits.waiting(cluster.never))


def best_division(jobs: Sequence[SimulatedJob], gpus: int) -> tuple[int, ...]:
    """Workers of each job so that as many GPUs as can be are used, and where there is a choice, to the greatest gain.

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
    gains = [(-_gain(jobs[number], workers[number]), number) for number in order if workers[number]]
    heapify(gains)
    while gains and gpus:
        _, number = heappop(gains)
        job = jobs[number]
        if workers[number] < job.max and job.gpus <= gpus:
            workers[number] += 1
            gpus -= job.gpus
            heappush(gains, (-_gain(job, workers[number]), number))
    return tuple(workers)


def _gain(job: SimulatedJob, workers: int) -> float:
    """Of one worker more, for each GPU, as a part of what the job can reach."""
    if workers >= job.max:
        return 0.0
    return job.weight * (job.speeds[workers + 1] - job.speeds[workers]) / (job.speeds[job.max] * job.gpus)
