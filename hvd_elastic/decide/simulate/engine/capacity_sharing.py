"""Several jobs that share what is idle: what a `Share` is asked, when, and what is made of its answer."""

from collections.abc import Callable, Mapping
from typing import Final

from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase
from hvd_elastic.policy.job_demand import JobDemand

Share = Callable[[tuple[JobDemand, ...], int], Mapping[str, int]]
"""The jobs that have work and the GPUs that inference leaves to them, to the workers that each shall have."""

PERIOD_SECONDS: Final = 60.0
"""Between two questions if nothing changes."""


class CapacitySharing:
    """Asks the share on a period, and in each moment in which the capacity or the number of jobs has changed."""

    def __init__(self, cluster: ClusterDay, share: Share, *, kept: Callable[[], int] | None = None) -> None:
        """`kept`: GPUs of those that inference leaves that jobs leave idle, but for the min of each."""
        self._cluster = cluster
        self._share = share
        self._kept = kept
        self._seen: tuple[int, int] | None = None

    def begin(self) -> None:
        """Ask on the period as long as the day lasts. Others call `look`."""
        self._cluster.at(0.0, self._tick)

    def look(self, now: float) -> float:
        """Ask if something has changed. Infinity: it need not be called before something happens."""
        seen = self._left(), len(self._with_work())
        if seen != self._seen:
            self._seen = seen
            self._cluster.at(now, self._ask)
        return float("inf")

    def _tick(self, now: float) -> None:
        self._ask(now)
        self._cluster.at(now + PERIOD_SECONDS, self._tick)

    def _left(self) -> int:
        """GPUs to share."""
        return self._cluster.lendable - (self._kept() if self._kept else 0)

    def _with_work(self) -> list[JobRun]:
        return [run for run in self._cluster.runs if run.has_work]

    def _ask(self, now: float) -> None:
        runs = self._with_work()
        if not runs:
            return
        shared = self._share(tuple(_demand(run, now) for run in runs), self._left())
        wanted = {run: shared.get(run.job.name, run.workers.wanted) for run in runs}
        if self._kept:  # as `autoscale` decides: less than its min is no job, so that much is asked for
            wanted = {run: workers or run.job.min for run, workers in wanted.items()}
        for run, workers in sorted(wanted.items(), key=lambda change: change[1] - change[0].workers.wanted):
            run.workers.want(workers, now)


def _demand(run: JobRun, now: float) -> JobDemand:
    return JobDemand(
        name=run.job.name,
        min=run.job.min,
        max=run.job.max,
        sizes=run.job.sizes,
        workers=run.workers.count(WorkerPhase.MEMBER),
        wanted=run.workers.wanted,
        gpus=run.job.gpus,
        speeds=run.job.speeds,
        weight=run.job.weight,
        buy=run.job.buy,
        age_seconds=now - run.first_step if run.first_step is not None else 0.0,
        resizes=run.resizes,
        since_resize_seconds=now - run.last_resize if run.last_resize is not None else float("inf"),
        stall_grow_seconds=run.stalls.grow,
        stall_shrink_seconds=run.stalls.shrink,
    )
