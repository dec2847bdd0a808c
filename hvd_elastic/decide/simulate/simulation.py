"""One day in one way, from what happens to a cluster and the jobs in it to what comes of them."""

from collections.abc import Callable, Sequence
from typing import Final

from hvd_elastic.decide.simulate.autoscaling.cluster_autoscaler import ClusterAutoscaler
from hvd_elastic.decide.simulate.autoscaling.inference_reserve import InferenceReserve, ReserveRule
from hvd_elastic.decide.simulate.autoscaling.look_schedule import Look, LookSchedule
from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.engine.capacity_sharing import CapacitySharing, Share
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.idle_capacity import idle_stretches
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.oracle import Oracle, endless
from hvd_elastic.decide.simulate.engine.slow_replacement import SlowReplacement
from hvd_elastic.decide.simulate.outcome import DayOutcome, JobOutcome
from hvd_elastic.decide.simulate.ways import RESPONSES
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way

__all__ = ["Share", "ignore", "simulate"]

_STEPS_OF_PROGRESS: Final = 200


def ignore(_part: float) -> None:
    """Nobody looks at the progress."""


def simulate(
    day: Day,
    jobs: Sequence[SimulatedJob],
    way: Way,
    stalls: Stalls,
    *,
    share: Share | None = None,
    reserve: ReserveRule | None = None,
    excludes_slow: bool = False,
    progress: Callable[[float], None] = ignore,
) -> DayOutcome:
    """Play the day. The same arguments give the same outcome.

    `share` divides what inference leaves among the jobs, but for the `reserve`; without it they compete as their pods
    do. `excludes_slow`: in the way `ours`, the successor of a slow worker keeps off its node. `progress` is told which
    part of the day is done, 200 times at most. docs/simulate.md says what is simulated and what is not.

    What is given to jobs is what inference leaves in a day without them. The nodes of the day count, and those that a
    cluster autoscaler buys there, for inference alone and for as long as that needs them: given is the same in all
    ways, and with any reserve. Nodes that are bought, or stay, for training or for a buffer do not count, so that who
    trains on them can have more than was given.
    """
    idle, tell = ClusterDay(day, stalls), _told_at_steps(progress, day.seconds)
    buyer = _autoscaled(idle, day)
    if way is Way.ORACLE:
        cluster, outcomes = idle, _play_oracle(idle, jobs, tell)
    else:
        cluster = _with_jobs(day, jobs, way, stalls)
        buyer = _autoscaled(cluster, day, share, reserve)
        if way is Way.OURS and any(job.replaces_slow for job in jobs):
            SlowReplacement(cluster, excludes=excludes_slow).begin()
        outcomes = _play_beside_oracle(cluster, idle, tell)
    progress(1.0)
    waiting = cluster.waits.waiting(cluster.stuck.total())
    bought = buyer.bought(day.seconds) if buyer else 0.0
    return DayOutcome(way=way, source=day.source, seconds=day.seconds, jobs=outcomes, inference=waiting, bought=bought)


def _play_oracle(
    idle: ClusterDay, jobs: Sequence[SimulatedJob], tell: Callable[[float], None]
) -> tuple[JobOutcome, ...]:
    oracle = Oracle(jobs)
    for stretch in idle_stretches(idle):
        oracle.use(stretch)
        tell(stretch.end)
    return tuple(job.outcome() for job in oracle.jobs)


def _play_beside_oracle(cluster: ClusterDay, idle: ClusterDay, tell: Callable[[float], None]) -> tuple[JobOutcome, ...]:
    """Stretch by stretch, so that neither day is kept: what is given to a job ends when the job has ended."""
    given = Oracle((endless(run.job) for run in cluster.runs), keeps_sizes=False)
    for stretch in idle_stretches(idle):
        for now in cluster.moments(stretch.end):
            tell(now)
        for job, run in zip(given.jobs, cluster.runs, strict=True):
            job.ends = run.completed if run.completed is not None else job.ends
        given.use(stretch)
    return tuple(_outcome(run, job.held, idle.seconds) for run, job in zip(cluster.runs, given.jobs, strict=True))


def _told_at_steps(progress: Callable[[float], None], seconds: float) -> Callable[[float], None]:
    told = 0

    def tell(now: float) -> None:
        nonlocal told
        if now / seconds * _STEPS_OF_PROGRESS >= told:
            told += 1
            progress(now / seconds)

    return tell


def _with_jobs(day: Day, jobs: Sequence[SimulatedJob], way: Way, stalls: Stalls) -> ClusterDay:
    cluster = ClusterDay(day, stalls, unit=min((job.gpus for job in jobs), default=1))
    for number, job in enumerate(jobs):
        cluster.runs.append(JobRun(number, job, RESPONSES[way](), stalls, cluster))
        cluster.at(job.begins, cluster.runs[number].submit)
    return cluster


def _autoscaled(
    cluster: ClusterDay, day: Day, share: Share | None = None, rule: ReserveRule | None = None
) -> ClusterAutoscaler | None:
    """Begin what scales nodes and jobs.

    The cluster autoscaler looks first: it sees what inference has taken before jobs have given it back.
    """
    group = day.node_group
    reserve = InferenceReserve(cluster, rule, node=group.gpus if group else 0) if rule else None
    looks: list[Look] = []
    buyer = None
    if group:
        buyer = ClusterAutoscaler(cluster, group, shared=share is not None)
        looks.append(buyer.look)
    if reserve:
        looks.append(reserve.look)
    if share is not None:
        sharing = CapacitySharing(cluster, share, kept=reserve.kept if reserve else None)
        sharing.begin()
        (looks if reserve else cluster.on_change).append(sharing.look)
    if looks:
        LookSchedule(cluster, looks).begin()
    return buyer


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
        sizes=run.sizes,
    )
