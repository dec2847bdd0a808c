"""Simulates a day with one setting after the other, on all cores where it is long."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan, JobSetting, simulated_jobs
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way

_WORTH_A_POOL_SECONDS: Final = 4.0
"""Starting processes takes about one."""


class Simulator(Protocol):
    """`hvd_elastic.decide.simulate.simulation.simulate`."""

    def __call__(self, day: Day, jobs: Sequence[SimulatedJob], way: Way, stalls: Stalls) -> DayOutcome:
        """Play the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGround:
    """What is the same in all trials."""

    day: Day
    plans: tuple[JobPlan, ...]
    """The first is the job whose numbers are chosen. The others keep theirs."""
    stalls: Stalls


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPoint:
    """One trial: a setting, and the event whose stall is doubled in it, if any."""

    setting: JobSetting
    doubled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingResult:
    """What a setting comes to."""

    setting: JobSetting
    work_hours: float
    """Trained and kept by all jobs, in hours that it takes undisturbed at the `workers.max` of each description."""
    completed: float | None
    """Second at which the last job ended; None: one goes on."""
    goodput: float
    held_gpu_hours: float
    waiting_p99: float
    repeated_steps: int


def run_trials(
    ground: TrialGround,
    points: Sequence[TrialPoint],
    simulator: Simulator,
    *,
    tell: Callable[[int], None] = lambda _done: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[SettingResult]:
    """The results in the order of the points. `tell` hears how many are done."""
    if not points:
        return []
    began = clock()
    results = [_trial(ground, simulator, points[0])]
    tell(1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    long = (clock() - began) * (len(points) - 1) > _WORTH_A_POOL_SECONDS
    several = _in_processes(ground, simulator, points[1:], cores) if long and cores > 1 else None
    for result in several or map(partial(_trial, ground, simulator), points[1:]):
        results.append(result)
        tell(len(results))
    return results


def _in_processes(
    ground: TrialGround, simulator: Simulator, points: Sequence[TrialPoint], cores: int
) -> Iterator[SettingResult]:
    with ProcessPoolExecutor(cores) as pool:
        yield from pool.map(partial(_trial, ground, simulator), points)


def _trial(ground: TrialGround, simulator: Simulator, point: TrialPoint) -> SettingResult:
    first, *others = ground.plans
    jobs = [*simulated_jobs(first, point.setting), *(job for plan in others for job in simulated_jobs(plan))]
    stalls = ground.stalls
    if point.doubled is not None:
        stalls = replace(stalls, **{point.doubled: 2 * getattr(stalls, point.doubled)})
    outcome = simulator(ground.day, jobs, Way.OURS, stalls)
    full_speeds = [plan_job.speeds[-1] for plan in ground.plans for plan_job in simulated_jobs(plan)[:1]]
    copies = [point.setting.copies, *(plan.copies for plan in others)]
    speeds = [speed for speed, count in zip(full_speeds, copies, strict=True) for _ in range(count)]
    work = sum(job.samples / speed for job, speed in zip(outcome.jobs, speeds, strict=True))
    ends = [job.completed for job in outcome.jobs]
    return SettingResult(
        setting=point.setting,
        work_hours=work / 3600,
        completed=None if None in ends else max(end for end in ends if end is not None),
        goodput=outcome.goodput,
        held_gpu_hours=sum(job.held for job in outcome.jobs) / 3600,
        waiting_p99=outcome.inference.p99,
        repeated_steps=sum(job.repeated_steps for job in outcome.jobs),
    )
