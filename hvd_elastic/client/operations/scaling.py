"""Another number of workers for a job that runs. Its sidecar drains those that go, and then sets the replicas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.operations.first_step import JobFailedError
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob, find_submitted
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS, ANNOTATION_WANTED_WORKERS
from hvd_elastic.system.plain_words import count_words

POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What was asked for."""

    job: SubmittedJob
    """Before it was asked."""
    workers: int

    @property
    def before(self) -> int:
        """The number of workers that was asked for before."""
        return self.job.asked

    @property
    def restarts(self) -> bool:
        """Whether the job begins anew from its durable checkpoint, because Kueue has admitted another number of pods.

        Kueue stops a job whose Workload no longer fits it, and admits it anew (`ensureOneWorkload` in its
        `pkg/controller/jobframework/reconciler.go`). It resizes some kinds of jobs in place (the feature gate
        `ElasticJobsViaWorkloadSlices`, on from Kueue 0.18), but no MPIJob: `supportedElasticJobGVKs` in
        `pkg/controller/jobframework/validation.go` has Jobs and Ray's kinds in August 2026 (0.20.0-devel).
        """
        return bool(self.job.queue) and not self.job.suspended and self.workers != self.job.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeProgress:
    """How far a job is on its way to a number of workers."""

    workers: int
    replicas: int
    training: int
    """Workers that train, as the sidecar last said."""

    @property
    def is_reached(self) -> bool:
        """Whether as many train as were asked for, and the operator makes no more."""
        return self.replicas == self.training == self.workers

    def __str__(self) -> str:
        """One line for people."""
        return f"{count_words(self.training, 'worker')} in training, {self.workers} wanted"


def scale(
    cluster: ClusterClient, name: str, workers: int, *, approve: Callable[[Scaling], None] = lambda _scaling: None
) -> Scaling:
    """Ask for a number of workers that the job's description allows.

    Args:
        cluster: with the job in its namespace.
        name: of the job.
        workers: to be asked for.
        approve: is told what is about to be asked for; nothing is changed if it raises.

    Raises JobStateError if it is not allowed, or the job has ended; UnknownJobError; ForeignJobError; other
    ClusterErrors.
    """
    decided = scaling_of(find_submitted(cluster, name), workers)
    approve(decided)
    change = {"metadata": {"uid": decided.job.uid, "annotations": {ANNOTATION_WANTED_WORKERS: str(workers)}}}
    cluster.patch(mpijob_path(cluster.namespace, name), change, fieldManager="hvd-elastic")
    return decided


def scaling_of(job: SubmittedJob, workers: int) -> Scaling:
    """What is to be asked for, by the job's state alone. Raises JobStateError."""
    if job.ended:
        raise JobStateError(f"{job.name} has {job.ended}: hvd-elastic restart {job.name} begins it again")
    bounds = job.description.workers
    if not bounds.allows(workers):
        raise JobStateError(
            f"{job.name} may have {bounds.size_words} as its number of workers, so not {workers}: to have other "
            "bounds, change workers in its description, and submit it again"
        )
    return Scaling(job=job, workers=workers)


def wait_for_size(
    cluster: ClusterClient,
    name: str,
    workers: int,
    *,
    report: Callable[[SizeProgress], None],
    sleep: Callable[[float], None],
) -> None:
    """Look once a second until as many workers train as were asked for. `report` hears of each change.

    Raises JobFailedError if the job ends before; NotFoundError; other ClusterErrors that do not pass by themselves.
    """
    wait = LongWait(sleep=sleep)
    told: SizeProgress | None = None
    while told is None or not told.is_reached:
        if told is not None:
            sleep(POLL_SECONDS)
        body = wait.look(lambda: cluster.get(mpijob_path(cluster.namespace, name)))
        job = SubmittedJob.from_json(body)
        status = LiveStatus.from_json((body["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS, ""))
        seen = SizeProgress(workers=workers, replicas=job.replicas, training=status.workers if status else 0)
        if seen != told:
            report(seen)
            told = seen
        if job.ended and not seen.is_reached:
            raise JobFailedError(f"{name} has {job.ended} before it had {count_words(workers, 'worker')}")
