"""The day that no way can beat: each idle GPU is used in the moment in which it is idle, and nothing ever stalls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from hvd_elastic.decide.simulate.engine.idle_capacity import IdleCapacity, best_division
from hvd_elastic.decide.simulate.outcome import JobOutcome, SizeHistory
from hvd_elastic.decide.simulate.workload import SimulatedJob

_KEPT_DIVISIONS: Final = 1024
"""Each is a number for each job: a year has far more than a few hundred jobs leave room for."""


@dataclass(slots=True, kw_only=True)
class OracleJob:
    """One job's share of what is idle."""

    job: SimulatedJob
    ends: float
    """It has work until then, or until all is trained."""
    workers: int = 0
    held: float = 0.0
    samples: float = 0.0
    completed: float | None = None
    sizes: SizeHistory = field(default_factory=SizeHistory)

    def has_work(self, now: float) -> bool:
        """Whether it takes what it is given."""
        return self.completed is None and self.job.begins <= now < self.ends

    def next_change(self, now: float) -> float:
        """When it begins or ends, if its workers stay as they are."""
        if now < self.job.begins:
            return self.job.begins
        speed = self.job.speeds[self.workers]
        return min(self.ends, now + (self.job.samples - self.samples) / speed) if speed else self.ends

    def set(self, workers: int, now: float) -> None:
        """Train with so many from now on."""
        self.workers = workers
        self.sizes.note(now, workers)

    def pass_until(self, then: float, now: float) -> None:
        """Train. It has ended if its last sample was trained by then."""
        finishes = self.has_work(now) and self.next_change(now) <= then < self.ends
        self.held += self.workers * self.job.gpus * (then - now)
        self.samples += self.job.speeds[self.workers] * (then - now)
        if finishes:
            self.samples, self.completed = self.job.samples, then

    def outcome(self) -> JobOutcome:
        """All that was held was of use."""
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
            resizes=max(self.sizes.count - 1, 0),
            restarts=0,
            pauses=0,
            paused_seconds=0.0,
            completed=self.completed,
            sizes=self.sizes.changes(),
        )


def play_oracle(idle: IdleCapacity, jobs: Sequence[SimulatedJob], seconds: float) -> tuple[JobOutcome, ...]:
    """Each job's day if it could use all that is idle."""
    played = [OracleJob(job=job, ends=float("inf")) for job in jobs]
    _play(idle, played, seconds)
    return tuple(job.outcome() for job in played)


def given_to(
    idle: IdleCapacity, jobs: Sequence[SimulatedJob], ends: Sequence[float], seconds: float
) -> tuple[float, ...]:
    """GPU-seconds that were there for each job between its min and max, from its begin until it ended."""
    played = [OracleJob(job=_endless(job), ends=end) for job, end in zip(jobs, ends, strict=True)]
    _play(idle, played, seconds)
    return tuple(job.held for job in played)


def _play(idle: IdleCapacity, jobs: Sequence[OracleJob], seconds: float) -> None:
    @lru_cache(maxsize=_KEPT_DIVISIONS)
    def divided(working: tuple[int, ...], gpus: int) -> tuple[int, ...]:
        return best_division([jobs[number].job for number in working], gpus)

    later = [*idle.steps[1:], (float("inf"), 0)]
    for (begin, gpus), (end, _) in zip(idle.steps, later, strict=True):
        now = begin
        while now < min(end, seconds):
            working = tuple(number for number, job in enumerate(jobs) if job.has_work(now))
            now = _pass(jobs, dict(zip(working, divided(working, gpus), strict=True)), now, min(end, seconds))


def _pass(jobs: Sequence[OracleJob], workers: Mapping[int, int], now: float, end: float) -> float:
    """Until a job begins or ends, or what is idle changes."""
    for number, job in enumerate(jobs):
        job.set(workers.get(number, 0), now)
    then = min([end, *(job.next_change(now) for job in jobs if job.completed is None and now < job.ends)])
    for job in jobs:
        job.pass_until(then, now)
    return then


def _endless(job: SimulatedJob) -> SimulatedJob:
    return replace(job, samples=float("inf"))
