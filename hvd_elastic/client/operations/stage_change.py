"""What becomes of a job's data set when its description is submitted again: which copy begins, goes on, or is removed.

Pure: the manifests that a description renders, and what the cluster has, in; what to apply and to delete, out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hvd_elastic.client.connection.cluster_client import Json, Read
from hvd_elastic.client.operations.resource_paths import collection_path, object_path
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.mpijob.contract import LABEL_STAGE
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.supporting import staging


class CopyState(StrEnum):
    """What a Job that copies a data set does."""

    RUNNING = "is running"
    COMPLETE = "has ended: the data set is whole"
    FAILED = "has failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """What to do about the data set of a job."""

    skipped: frozenset[str] = frozenset()
    """API paths of manifests that are not applied: the job trains on data that is whole, which a copy would renew."""
    outdated: Sequence[Json] = ()
    """Jobs to delete: they copy for an older description."""


def copies_read(spec: JobSpec) -> list[Read]:
    """What must be asked: the Jobs that copy for this job, whatever description they are of."""
    if spec.stage is None:
        return []
    path = collection_path("batch/v1", "Job", spec.namespace)
    return [Read(path=path, query={"labelSelector": f"{LABEL_STAGE}={spec.name}"})]


def plan_stage_change(
    spec: JobSpec, live: Mapping[str, Json | None], copies: Sequence[Json], job: Json | None
) -> StageChange:
    """Judge the data set of a job that is submitted.

    Args:
        spec: the description; one without `stage` leaves a copy that was begun alone, since pods may wait for it.
        live: the objects of its manifests, as the cluster has them, by path.
        copies: what `copies_read` found.
        job: the live MPIJob.

    Raises JobStateError if workers train, and others would come to another data set than theirs.
    """
    wanted = {object_path(one): one for one in staging.wanted(spec)}
    if not wanted:
        return StageChange()
    copy_path = next(object_path(one) for one in staging.manifests(spec))
    has_changed = any(_data(live.get(path)) != one["data"] for path, one in wanted.items())
    seen = SubmittedJob.from_json(job) if job else None
    if seen and seen.has_begun and not seen.suspended and not seen.ended and has_changed:
        raise _trains_on_another(seen)
    is_whole = seen is not None and seen.has_begun and not has_changed
    if is_whole and live.get(copy_path) is None and all(copy_state(one) is CopyState.COMPLETE for one in copies):
        return StageChange(skipped=frozenset([copy_path]))
    return StageChange(outdated=tuple(outdated(copies, spec)))


def outdated(copies: Iterable[Json], spec: JobSpec) -> Iterator[Json]:
    """The Jobs that copy for an older description."""
    current = {one["metadata"]["name"] for one in staging.manifests(spec)}
    for one in copies:
        if one["metadata"]["name"] not in current and "deletionTimestamp" not in one["metadata"]:
            yield {"apiVersion": "batch/v1", "kind": "Job", **one}  # a list's items do not say what they are


def copy_state(job: Mapping[str, Any]) -> CopyState:
    """What a Kubernetes Job does, by its conditions (kubernetes.io/docs/concepts/workloads/controllers/job)."""
    if true_condition(job, "Failed"):
        return CopyState.FAILED
    return CopyState.COMPLETE if true_condition(job, "Complete") else CopyState.RUNNING


def _data(config: Json | None) -> Mapping[str, str]:
    return (config or {}).get("data") or {}


def _trains_on_another(job: SubmittedJob) -> JobStateError:
    return JobStateError(
        f"{job.name} trains, and `stage` names another data set than the one that its workers have, which the copy "
        f"might overwrite: hvd-elastic suspend {job.name}, submit it, then hvd-elastic resume {job.name}; or give the "
        "new one another `name` and `stage.into`"
    )
