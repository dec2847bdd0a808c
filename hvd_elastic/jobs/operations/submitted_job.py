"""A job that is in the cluster, as its MPIJob tells of it, and how it is found."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.jobs.cluster_client import ClusterClient, ClusterError, NotFoundError
from hvd_elastic.jobs.operations.resource_paths import mpijob_path
from hvd_elastic.mpijob.contract import (
    ANNOTATION_BEGUN,
    ANNOTATION_SPEC,
    ANNOTATION_WANTED_WORKERS,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    Exit,
)

if TYPE_CHECKING:
    from hvd_elastic.mpijob.description.job_spec import JobSpec

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Kueue admits, suspends and resumes what has this label (its `pkg/controller/constants`, `QueueLabel`)."""


class UnknownJobError(ClusterError):
    """There is no job of this name."""

    exit_code = Exit.BAD_INPUT


class ForeignJobError(ClusterError):
    """The MPIJob of this name was not made by this project, so it is left alone."""

    exit_code = Exit.BAD_INPUT


class JobStateError(ClusterError):
    """The job is in a state in which this cannot be done. Nothing was changed."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """An MPIJob of `kubeflow.org/v2beta1`."""

    name: str
    namespace: str
    uid: str
    is_ours: bool
    replicas: int
    """Workers that the operator makes pods for."""
    wanted: str
    """The annotation WANTED_WORKERS; empty: the job was never scaled."""
    suspended: bool
    queue: str
    """Kueue's queue; empty: the job is in none."""
    has_launched: bool
    """Whether it has had a launcher."""
    has_begun: bool
    """Whether a worker has trained."""
    ended: str
    """`succeeded` or `failed`; empty: it goes on. A job whose worker was evicted has the condition Failed and goes on,
    so only the completion time tells."""
    is_deleted: bool
    """Whether it is being deleted."""
    description_text: str
    """The annotation SPEC."""

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> "SubmittedJob":
        """Read an MPIJob as the API server sends it."""
        meta, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
        return cls(
            name=meta["name"],
            namespace=meta.get("namespace", ""),
            uid=meta.get("uid", ""),
            is_ours=labels.get(LABEL_MANAGED_BY) == MANAGED_BY,
            replicas=int(spec["mpiReplicaSpecs"].get("Worker", {}).get("replicas") or 0),
            wanted=annotations.get(ANNOTATION_WANTED_WORKERS, ""),
            suspended=bool((spec.get("runPolicy") or {}).get("suspend")),
            queue=labels.get(KUEUE_QUEUE, ""),
            has_launched=bool(status.get("startTime")),
            has_begun=annotations.get(ANNOTATION_BEGUN) == "true",
            ended=_ending(status),
            is_deleted="deletionTimestamp" in meta,
            description_text=annotations.get(ANNOTATION_SPEC, ""),
        )

    @property
    def description(self) -> "JobSpec":
        """The job description from which it was made. Raises JobStateError if the job carries none."""
        from hvd_elastic.mpijob.description.reader import read_job
        from hvd_elastic.mpijob.problems import InvalidInputError

        if not self.description_text:
            raise JobStateError(f"{self.name} carries no job description: submit it again")
        try:
            return read_job(self.description_text)
        except InvalidInputError as error:
            said = "; ".join(str(error).splitlines())
            raise JobStateError(
                f"{self.name} carries a job description of another release ({said}): submit it again"
            ) from error


def find_job(cluster: ClusterClient, name: str) -> SubmittedJob:
    """The job of this name in the client's namespace.

    Raises UnknownJobError, which names the nearest jobs; ForeignJobError; other ClusterErrors.
    """
    try:
        job = SubmittedJob.from_json(cluster.get(mpijob_path(cluster.namespace, name)))
    except NotFoundError:
        raise UnknownJobError(_unknown(cluster, name)) from None
    if not job.is_ours:
        raise ForeignJobError(foreign(job))
    return job


def foreign(job: SubmittedJob) -> str:
    """Why a job is left alone."""
    return (
        f"the MPIJob {job.name} in namespace {job.namespace} is not from this project "
        f"(it has no label {LABEL_MANAGED_BY}={MANAGED_BY}), so it is left alone: use kubectl"
    )


def _unknown(cluster: ClusterClient, name: str) -> str:
    said = f"there is no job {name} in namespace {cluster.namespace}"
    try:
        names = [job["metadata"]["name"] for job in cluster.list(mpijob_path(cluster.namespace))]
    except NotFoundError:
        return f"{said}: this cluster has no MPIJobs of kubeflow.org/v2beta1 (hvd-elastic doctor)"
    except ClusterError:
        return said
    near = difflib.get_close_matches(name, names, n=3)
    return f"{said}: did you mean {', '.join(near)}?" if near else f"{said}, which has {_listed(names)}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5]) or "no jobs"
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _ending(status: Mapping[str, Any]) -> str:
    conditions = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
    if "Succeeded" in conditions:
        return "succeeded"
    return "failed" if status.get("completionTime") else ""
