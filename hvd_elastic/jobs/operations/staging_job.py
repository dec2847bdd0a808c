"""The Job that stages a data set, apart from the job that trains on it: begun before any GPU is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.jobs.cluster_client import ClusterClient, ClusterError, NotFoundError
from hvd_elastic.jobs.operations.deletion import Part, delete_and_wait
from hvd_elastic.jobs.operations.resource_paths import object_path
from hvd_elastic.jobs.operations.submission import FIELD_MANAGER
from hvd_elastic.mpijob import checks
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.supporting import shared_storage, staging
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_POLL_SECONDS: Final = 1.0


class StageFailedError(ClusterError):
    """The Job has used up its attempts. What was copied stays."""


class StageState(StrEnum):
    """What a staging Job does."""

    RUNNING = "is running"
    COMPLETE = "has ended: the data set is whole"
    FAILED = "has failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStart:
    """A staging that was asked for."""

    name: str
    """Of the Kubernetes Job."""
    namespace: str
    begun: bool
    """False: it was running already."""


def begin_stage(cluster: ClusterClient, spec: JobSpec, *, sleep: Callable[[float], None]) -> StageStart:
    """Apply the job's storage and its staging Job. One that has ended is replaced: what is whole is not copied again.

    Raises InvalidInputError if the job has no `stage` or cannot run in a cluster, and ClusterError.
    """
    problems = checks.target_problems(spec, Target.MPIJOB)
    if spec.stage is None:
        problems.append(Problem(path="stage", value=None, what="is missing", way_out="write stage: s3://bucket/prefix"))
    if problems:
        raise InvalidInputError(problems)
    (job,) = staging.manifests(spec)
    name, path = job["metadata"]["name"], object_path(job)
    if (live := _live(cluster, path)) is not None:
        if state_of(live) is StageState.RUNNING:
            return StageStart(name=name, namespace=spec.namespace, begun=False)
        delete_and_wait(cluster, Part(kind="Job", name=name, path=path, uid=live["metadata"]["uid"]), sleep=sleep)
    for manifest in (*shared_storage.manifests(spec), job):
        cluster.apply(object_path(manifest), manifest, manager=FIELD_MANAGER)
    return StageStart(name=name, namespace=spec.namespace, begun=True)


def wait_for_stage(cluster: ClusterClient, spec: JobSpec, *, sleep: Callable[[float], None]) -> None:
    """Wait for the end of the staging Job. Raises StageFailedError, NotFoundError if it is gone, ClusterError."""
    (job,) = staging.manifests(spec)
    name = job["metadata"]["name"]
    while (state := state_of(cluster.get(object_path(job)))) is StageState.RUNNING:
        sleep(_POLL_SECONDS)
    if state is StageState.FAILED:
        raise StageFailedError(f"{name} has failed: kubectl logs -n {spec.namespace} job/{name} says why; stage again")


def state_of(job: Mapping[str, Any]) -> StageState:
    """What a Kubernetes Job does, by its conditions (kubernetes.io/docs/concepts/workloads/controllers/job)."""
    conditions = job.get("status", {}).get("conditions") or ()
    true = {condition["type"] for condition in conditions if condition.get("status") == "True"}
    if "Failed" in true:
        return StageState.FAILED
    return StageState.COMPLETE if "Complete" in true else StageState.RUNNING


def _live(cluster: ClusterClient, path: str) -> Mapping[str, Any] | None:
    try:
        return cluster.get(path)
    except NotFoundError:
        return None
