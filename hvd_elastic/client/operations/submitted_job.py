"""A job that is in the cluster, as its MPIJob tells of it, and how it is found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError
from hvd_elastic.client.job_lookup import find_job
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.mpijob.contract import (
    ANNOTATION_BEGUN,
    ANNOTATION_SPEC,
    ANNOTATION_WANTED_WORKERS,
    KUEUE_QUEUE,
    Exit,
)
from hvd_elastic.system.untrusted_values import decimal_count, json_object

if TYPE_CHECKING:
    from hvd_elastic.mpijob.description.job_spec import JobSpec

MPIJOB_API: Final = "kubeflow.org/v2beta1"


class JobStateError(ClusterError):
    """The job is in a state in which this cannot be done. Nothing was changed."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """An MPIJob of `kubeflow.org/v2beta1`."""

    name: str
    namespace: str
    uid: str
    replicas: int
    """Workers that the operator makes pods for."""
    wanted: str
    """The annotation WANTED_WORKERS; empty: the job was never scaled."""
    suspended: bool
    queue: str
    """Kueue's, which suspends and resumes the job as a whole; empty: none does. Its workers may be in one all the same.
    """
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
            replicas=int(spec["mpiReplicaSpecs"].get("Worker", {}).get("replicas") or 0),
            wanted=annotations.get(ANNOTATION_WANTED_WORKERS, ""),
            suspended=bool((spec.get("runPolicy") or {}).get("suspend")),
            queue=labels.get(KUEUE_QUEUE, ""),
            has_launched=bool(status.get("startTime")),
            has_begun=annotations.get(ANNOTATION_BEGUN) == "true",
            ended=_ending(job),
            is_deleted="deletionTimestamp" in meta,
            description_text=annotations.get(ANNOTATION_SPEC, ""),
        )

    @property
    def asked(self) -> int:
        """Workers that are asked for: the number in the annotation, else the replicas."""
        said = decimal_count(self.wanted)
        return self.replicas if said is None else said

    @property
    def description(self) -> "JobSpec":
        """The job description from which it was made. Raises JobStateError if another release wrote it."""
        from hvd_elastic.mpijob.job_reader import read_job
        from hvd_elastic.mpijob.problems import InvalidInputError

        try:
            json_object(self.description_text)  # JSON, as we write it: YAML may grow a thousandfold when it is read
            return read_job(self.description_text)
        except (InvalidInputError, ValueError) as error:
            said = "; ".join(str(error).splitlines())
            raise JobStateError(
                f"{self.name} carries a job description of another release ({said}): submit it again"
            ) from error


def find_submitted(cluster: ClusterClient, name: str) -> SubmittedJob:
    """The job of this name in the client's namespace.

    Raises UnknownJobError, which names the nearest jobs; ForeignJobError; JobStateError for a job of the legacy
    operator; other ClusterErrors.
    """
    job = find_job(cluster, name, cluster.namespace).job
    if job["apiVersion"] != MPIJOB_API:
        raise JobStateError(f"{name} is a {job['apiVersion']} job, which these verbs cannot change: use kubectl")
    return SubmittedJob.from_json(job)


def _ending(job: Mapping[str, Any]) -> str:
    if true_condition(job, "Succeeded"):
        return "succeeded"
    return "failed" if (job.get("status") or {}).get("completionTime") else ""
