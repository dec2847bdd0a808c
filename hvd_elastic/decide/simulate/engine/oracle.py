"""The day that no way can beat: each idle GPU is used in the moment in which it is idle, and nothing ever stalls."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hvd_elastic.decide.simulate.engine.idle_capacity import IdleStretch, best_division
from hvd_elastic.decide.simulate.outcome import JobOutcome, SizeHistory
from hvd_elastic.decide.simulate.workload import SimulatedJob

_KEPT_DIVISIONS: Final = 1024
"""By the GPUs that are idle. Each is a number for each job, four bytes: a year has far more than there is room for."""


@dataclass(slots=True, kw_only=True)
class OracleJob:
    """One job's share of what is idle."""

    job: SimulatedJob
    ends: float = float("inf")
    """It has work until then, or until all is trained."""
    workers: int = 0
    held: float = 0.0
    samples: float = 0.0
    completed: float | None = None
    sizes: SizeHistory | None = None
    """None: nobody asks for them."""

    def has_work(self, now: float) -> bool:
        """Whether it takes what it is given."""
        return self.completed is None and self.job.begins <= now < self.ends

    def next_change(self, now: float) -> float:
        """When it begins or ends, if its workers stay as they are. Infinity once it has ended."""
        if self.completed is not None or now >= self.ends:
            return float("inf")
        if now < self.job.begins:
            return self.job.begins
        speed = self.job.speeds[self.workers]
        return min(self.ends, now + (self.job.samples - self.samples) / speed) if speed else self.ends

    def set(self, workers: int, now: float) -> None:
        """Train with so many from now on."""
        self.workers = workers
        if self.sizes is not None:
            self.sizes.note(now, workers)

    def pass_until(self, then: float, now: float, change: float) -> None:
        """Train. It has ended if its last sample was trained by then; `change`: its `next_change`."""
        finishes = self.job.begins <= now and change <= then < self.ends
        self.held += self.workers * self.job.gpus * (then - now)
        self.samples += self.job.speeds[self.workers] * (then - now)
        if finishes:
            self.samples, self.completed = self.job.samples, then

    def outcome(self) -> JobOutcome:
        """All that was held was of use."""
        sizes = self.sizes or SizeHistory()
        steps = round(self.samples / self.job.samples_per_step)
        return JobOutcome(
            name=self.job.name,
            useful=self.held,
            held=self.held,
            given=self.held,
            stalled=0.0,
            repeated=0.0,
            starting=0.0,
            samples=self.samples,
            steps=steps,
            repeated_steps=0,
            resizes=max(sizes.count - 1, 0),
            restarts=0,
            pauses=0,
            paused_seconds=0.0,
            completed=self.completed,
            sizes=sizes,
        )


class Oracle:
    """Divides what is idle among jobs, one stretch after the other."""

    def __init__(self, jobs: Iterable[SimulatedJob], *, keeps_sizes: bool = True) -> None:
        """`keeps_sizes`: each outcome has them. Default True."""
        self.jobs = tuple(OracleJob(job=job, sizes=SizeHistory() if keeps_sizes else None) for job in jobs)
        self._working: list[int] = []
        """The numbers of the jobs for which divisions are kept."""
        self._divided = lru_cache(maxsize=_KEPT_DIVISIONS)(self._divide)

    def use(self, stretch: IdleStretch) -> None:
        """Let the jobs train on what is idle. Their `ends` within the stretch are known by now."""
        now = stretch.begin
        while now < stretch.end:
            working = [number for number, job in enumerate(self.jobs) if job.has_work(now)]
            if working != self._working:
                self._working = working
                self._divided.cache_clear()
            workers = dict(zip(self._working, self._divided(stretch.gpus), strict=True))
            now = self._pass(workers, now, stretch.end)

    def _divide(self, gpus: int) -> "array[int]":
        return array("i", best_division([self.jobs[number].job for number in self._working], gpus))

    def _pass(self, workers: Mapping[int, int], now: float, end: float) -> float:
        """Until a job begins or ends, or what is idle changes."""
        for number, job in enumerate(self.jobs):
            job.set(workers.get(number, 0), now)
        changes = [job.next_change(now) for job in self.jobs]
        then = min([end, *changes])
        for job, change in zip(self.jobs, changes, strict=True):
            job.pass_until(then, now, change)
        return then


def endless(job: SimulatedJob) -> SimulatedJob:
    """What it would hold if it had work until its `ends`: what is given to it."""
    return replace(job, samples=float("inf"))
