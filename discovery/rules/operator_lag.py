"""What the MPI Operator still has to do for a job, for how long it has done nothing, and whether to leave it alone.

It makes the workers that are missing, deletes those beyond the replicas, and then notes in the MPIJob's status how many
run (mpi-operator 0.8.2, `pkg/controller/mpi_job_controller.go`: `getOrCreateWorker`, `updateMPIJobStatus`). Each event
of the MPIJob, of its pods and of what else it owns ends in `AddRateLimited`, which counts a failure (`enqueueMPIJob`);
only a look at the job that succeeds forgets them. The wait after an error is 5 ms, doubled by each, at most 1,000 s:
after eighteen of them it is that long, and no event brings the next look forward (client-go, `delaying_queue.go`).

A write of ours onto the MPIJob is such an event. If it comes while the operator works, it is also the error: the
operator updates the status of the MPIJob that it read before, and that conflicts. So nothing is written meanwhile.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import JobView, Json, PodView, unix_seconds
from hvd_elastic.system.plain_words import count_words

LATE_SECONDS: Final = 15.0
"""An operator that has work and has done none for so long is late. It makes a pod within two seconds as a rule; at its
own limit of ten events a second it looks at a job of 64 workers after 9 s."""
SETTLE_SECONDS: Final = 2.0
"""Its work is done for so long before something is written onto the MPIJob: pods tell of themselves a moment later."""
HELD_SECONDS: Final = 30.0
"""Work at which nothing moves for so long is no look at the job that our write could spoil: the operator does several
things a second. From then on we write, and no more often. Readers take a status of 90 s for an old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWork:
    """What the operator has to do. Without any of it, it is false."""

    missing: int = 0
    """Workers that have no pod."""
    surplus: int = 0
    """Workers beyond the replicas that were not told to end."""
    unnoted: int = 0
    """By how many the workers that run differ from those that the operator has noted."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.unnoted)

    @property
    def pods(self) -> int:
        """Pods to be made or deleted."""
        return self.missing + self.surplus

    @property
    def words(self) -> str:
        """The same for people: `3 workers have no pod, and 1 worker is too many`."""
        missing, surplus = count_words(self.missing, "worker"), count_words(self.surplus, "worker")
        parts = [f"{missing} {'has' if self.missing == 1 else 'have'} no pod"] if self.missing else []
        parts += [f"{surplus} {'is' if self.surplus == 1 else 'are'} too many"] if self.surplus else []
        return ", and ".join(parts)


def operator_work(job: JobView, pods: Collection[PodView]) -> OperatorWork:
    """What is left to do for a job. `pods`: of its workers, others' among them."""
    if job.ended or not job.has_mpi_operator or not (job.replicas or job.suspended):
        return OperatorWork()  # the operator refuses a job of no workers, and does nothing
    wanted = 0 if job.suspended else job.replicas
    own = [(pod.index, pod) for pod in pods if pod.owner_uid == job.uid and pod.index is not None]
    there = {index for index, _ in own if index < wanted}
    surplus = sum(index >= wanted and pod.deleting_at is None and not pod.has_ended for index, pod in own)
    running = sum(index < wanted and pod.phase == "Running" for index, pod in own)
    unnoted = 0 if job.noted_workers is None or job.suspended else abs(running - job.noted_workers)
    return OperatorWork(missing=wanted - len(there), surplus=surplus, unnoted=unnoted)


def last_sign(job: Json, pods: Sequence[Json]) -> float:
    """When the operator's work last changed, as far as one look tells, in Unix seconds.

    That is when somebody last changed the job's spec, the operator noted something, or a pod was made or told to end.
    `managedFields` has when each writer last wrote (https://kubernetes.io/docs/reference/using-api/server-side-apply/).
    """
    meta, metas = job["metadata"], [pod["metadata"] for pod in pods]
    wrote = (
        one.get("time")
        for one in meta.get("managedFields") or ()
        if one.get("subresource") == "status" or "f:spec" in (one.get("fieldsV1") or {})
    )
    made = (one.get("creationTimestamp") for one in (meta, *metas))
    told = (
        unix_seconds(one["deletionTimestamp"]) - float(one.get("deletionGracePeriodSeconds") or 0)
        for one in metas
        if one.get("deletionTimestamp")
    )
    return max((*map(unix_seconds, (*made, *wrote)), *told))


class OperatorLag:
    """Watches the operator's work. Not thread-safe. All times are of one clock that does not jump."""

    def __init__(self) -> None:
        self.work = OperatorWork()
        self._changed = float("-inf")
        self._moved = float("-inf")

    def see(self, work: OperatorWork, now: float) -> None:
        """The work as it is now. Only what the operator has done, or that it has pods to see to at all, is a move."""
        before = self.work
        if not before.pods or work.missing < before.missing or work.surplus < before.surplus:
            self._moved = now
        if work != before:
            self._changed = now
        self.work = work

    def wait_seconds(self, now: float) -> float:
        """For how long it has had pods to make or delete, and has done neither; 0: it has none."""
        return now - self._moved if self.work.pods else 0.0

    def holds_back(self, now: float, *, wrote: float) -> bool:
        """Whether nothing is to be written onto the MPIJob now. `wrote`: when we last did."""
        if not self.work:
            return now - self._changed < SETTLE_SECONDS
        return now - self._changed < HELD_SECONDS or now - wrote < HELD_SECONDS
