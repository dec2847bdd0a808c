"""A job begins anew from its durable checkpoint.

A job that goes on gets a fresh launcher: its launcher's pod is deleted, drains, and the launcher's Job makes the next
one; a launcher that was deleted counts no restart. A job that has ended is made again from its own description. A Job
that is complete makes no pod any more, and the operator makes no second Job (mpi-operator 0.8.2,
`pkg/controller/mpi_job_controller.go`, `syncHandler`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, NotFoundError, Read
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.operations.deletion import Part, delete_and_wait, remove
from hvd_elastic.client.operations.resource_paths import VOLUME_KINDS, mpijob_path, object_path
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob, find_submitted
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.render import render

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPlan:
    """What a restart would do."""

    job: SubmittedJob
    spec: JobSpec
    launchers: Sequence[Part]
    """Pods to delete. Empty: the job has ended, and is made again."""

    @property
    def loss(self) -> str:
        """What is lost, for people; empty: nothing."""
        if self.spec.checkpoint is not None or not (self.launchers and self.job.has_begun):
            return ""
        return "all training since the job's start: it has no `checkpoint`"

    def __str__(self) -> str:
        """What is done, for people."""
        checkpoint = self.spec.checkpoint
        since = "from its last durable checkpoint" if checkpoint else "from its first step"
        if self.launchers:
            return f"{self.job.name} gets a new launcher, and goes on {since}"
        return f"{self.job.name} has {self.job.ended}, is made again, and goes on {since}"


def plan_restart(cluster: ClusterClient, name: str) -> RestartPlan:
    """Look what a restart takes.

    Raises JobStateError if the job is suspended, or its next launcher is already to come; UnknownJobError;
    ForeignJobError; other ClusterErrors.
    """
    job = find_submitted(cluster, name)
    if job.ended:
        return RestartPlan(job=job, spec=job.description, launchers=())
    if job.suspended:
        raise JobStateError(f"{name} is suspended: hvd-elastic resume {name} starts it")
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    found = cluster.list(pods, labelSelector=f"{LABEL_JOB_NAME}={name},{LABEL_JOB_ROLE}={Role.LAUNCHER}")
    launchers = [
        Part(kind="Pod", name=meta["name"], path=f"{pods}/{meta['name']}", uid=meta["uid"])
        for pod in found
        if "deletionTimestamp" not in (meta := pod["metadata"]) and pod.get("status", {}).get("phase") not in _ENDED
    ]
    if not launchers:
        raise JobStateError(f"{name} has no launcher at the moment: the next one begins anew anyway")
    return RestartPlan(job=job, spec=job.description, launchers=launchers)


def restart(cluster: ClusterClient, plan: RestartPlan, *, sleep: Callable[[float], None]) -> None:
    """Do what was planned. Raises ClusterError."""
    if plan.launchers:
        for launcher in plan.launchers:
            remove(cluster, launcher)
        return
    spec = plan.spec.model_copy(update={"namespace": plan.job.namespace, "suspend": False})
    _disown(cluster, spec)
    path = mpijob_path(plan.job.namespace, plan.job.name)
    delete_and_wait(cluster, Part(kind="MPIJob", name=plan.job.name, path=path, uid=plan.job.uid), sleep=sleep)
    LongWait(sleep=sleep).look(lambda: submit(cluster, spec))  # else the job would be gone for good


def _disown(cluster: ClusterClient, spec: JobSpec) -> None:
    """What stands beside the job, its ledger included, must not go with the old job or its launcher's Job.

    The garbage collector deletes it at some time after its owner, so it could hit the next job's. The next submission
    and the next sidecar give it an owner again.
    """
    beside = [one for one in render(spec) if one["kind"] not in VOLUME_KINDS and "namespace" in one["metadata"]]
    paths = [object_path(one) for one in beside if one["kind"] != "MPIJob"]
    for path, live in zip(paths, cluster.gather([Read(path=path) for path in paths]), strict=True):
        if isinstance(live, NotFoundError):
            continue
        if isinstance(live, ClusterError):
            raise live
        if live["metadata"].get("ownerReferences"):
            cluster.patch(path, {"metadata": {"uid": live["metadata"]["uid"], "ownerReferences": None}})
