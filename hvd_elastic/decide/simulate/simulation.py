"""One day in one way, from what happens to a cluster and the jobs in it to what comes of them."""

from collections.abc import Callable, Sequence

from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.engine.capacity_sharing import CapacitySharing, Share
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.idle_capacity import IdleCapacity, idle_capacity
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.oracle import given_to, play_oracle
from hvd_elastic.decide.simulate.outcome import DayOutcome, JobOutcome
from hvd_elastic.decide.simulate.ways import RESPONSES
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way

__all__ = ["Share", "ignore", "simulate"]


def ignore(_part: float) -> None:
    """Nobody looks at the progress."""


def simulate(
    day: Day,
    jobs: Sequence[SimulatedJob],
    way: Way,
    stalls: Stalls,
    *,
    share: Share | None = None,
    progress: Callable[[float], None] = ignore,
) -> DayOutcome:
    """Play the day. The same arguments give the same outcome.

    `share` divides what inference leaves among the jobs; without it they compete as their pods do. `progress` is told
    which part of the day is done, 200 times at most. docs/simulation-model.md says what is simulated and what is not.
    """
    idle = idle_capacity(day, stalls)
    if way is Way.ORACLE:
        progress(1.0)
        outcomes = play_oracle(idle, jobs, day.seconds)
        return DayOutcome(way=way, source=day.source, seconds=day.seconds, jobs=outcomes, inference=idle.waiting)
    cluster = ClusterDay(day, stalls, unit=min((job.gpus for job in jobs), default=1))
    for number, job in enumerate(jobs):
        cluster.runs.append(JobRun(number, job, RESPONSES[way](), stalls, cluster))
        cluster.at(job.begins, cluster.runs[number].submit)
    if share is not None:
        CapacitySharing(cluster, share).begin()
    cluster.play(progress)
    return DayOutcome(
        way=way,
        source=day.source,
        seconds=day.seconds,
        jobs=_outcomes(cluster.runs, idle, day.seconds),
        inference=cluster.waits.waiting(cluster.never),
    )


def _outcomes(runs: Sequence[JobRun], idle: IdleCapacity, seconds: float) -> tuple[JobOutcome, ...]:
    ends = [run.completed if run.completed is not None else seconds for run in runs]
    given = given_to(idle, [run.job for run in runs], ends, seconds)
    return tuple(_outcome(run, gpu_seconds, seconds) for run, gpu_seconds in zip(runs, given, strict=True))


def _outcome(run: JobRun, given: float, seconds: float) -> JobOutcome:
    progress = run.progress
    progress.advance(max(seconds, progress.now))
    return JobOutcome(
        name=run.job.name,
        useful=progress.useful,
        held=progress.held,
        given=given,
        stalled=progress.stalled,
        repeated=progress.repeated,
        starting=progress.begun,
        samples=progress.samples,
        steps=round(progress.samples / run.job.samples_per_step),
        repeated_steps=round(progress.repeated_samples / run.job.samples_per_step),
        resizes=run.resizes,
        restarts=run.restarts,
        pauses=progress.pauses,
        paused_seconds=progress.paused_seconds,
        completed=run.completed,
        sizes=run.sizes.changes(),
    )
