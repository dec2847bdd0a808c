"""Suspending and resuming a job: `spec.runPolicy.suspend`. The operator deletes the pods, and makes them again."""

from dataclasses import dataclass, replace

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.operations.deletion import pods_ending
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob, find_submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """What was done."""

    job: SubmittedJob
    """Before it was done."""
    suspended: bool
    changed: bool
    ending: str = ""
    """Pods that go by it, in words; empty: there are none."""


def suspend(cluster: ClusterClient, name: str) -> Suspension:
    """Have the operator delete all pods of a job. Training goes on from the durable checkpoint when it is resumed.

    Raises JobStateError if the job has ended, or a queue decides; UnknownJobError; ForeignJobError; other
    ClusterErrors.
    """
    return _set(cluster, name, suspended=True)


def resume(cluster: ClusterClient, name: str) -> Suspension:
    """Have the operator make the pods of a suspended job again. Raises what `suspend` raises."""
    return _set(cluster, name, suspended=False)


def suspension_of(job: SubmittedJob, *, suspended: bool) -> Suspension:
    """What is to be done, by the job's state alone. Raises JobStateError."""
    if job.ended:
        raise JobStateError(f"{job.name} has {job.ended}: hvd-elastic restart {job.name} begins it again")
    if job.queue:
        active = "false" if suspended else "true"
        raise JobStateError(
            f"{job.name} is in the queue {job.queue}, and Kueue alone suspends and resumes such a job: kubectl patch "
            f'workload WORKLOAD -n {job.namespace} --type merge -p \'{{"spec":{{"active":{active}}}}}\' '
            f"(kubectl get workloads -n {job.namespace} names it)"
        )
    return Suspension(job=job, suspended=suspended, changed=job.suspended is not suspended)


def _set(cluster: ClusterClient, name: str, *, suspended: bool) -> Suspension:
    decided = suspension_of(find_submitted(cluster, name), suspended=suspended)
    if decided.changed:
        if suspended:
            decided = replace(decided, ending=pods_ending(cluster, name))
        # The UID in a merge patch is a precondition: another job of this name is left alone.
        change = {"metadata": {"uid": decided.job.uid}, "spec": {"runPolicy": {"suspend": suspended}}}
        cluster.patch(mpijob_path(cluster.namespace, name), change, fieldManager="hvd-elastic")
    return decided
