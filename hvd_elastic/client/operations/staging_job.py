"""The Job that stages a data set, apart from the job that trains on it: begun before any GPU is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, Json, NotFoundError, Read
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.operations.deletion import Part, delete_and_wait
from hvd_elastic.client.operations.resource_paths import mpijob_path, object_path
from hvd_elastic.client.operations.stage_change import (
    CopyState,
    copies_read,
    copy_state,
    outdated,
    plan_stage_change,
)
from hvd_elastic.client.operations.submission import FIELD_MANAGER
from hvd_elastic.mpijob import checks
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.supporting import network_policies, shared_storage, staging
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_POLL_SECONDS: Final = 1.0


class StageFailedError(ClusterError):
    """The Job has used up its attempts. What was copied stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStart:
    """A staging that was asked for."""

    name: str
    """Of the Kubernetes Job."""
    namespace: str
    begun: bool
    """False: it was running already."""


def begin_stage(cluster: ClusterClient, spec: JobSpec, *, sleep: Callable[[float], None]) -> StageStart:
    """Apply the job's storage and its staging Job, with its NetworkPolicy.

    One that has ended is replaced: what is whole is not copied again. Those of an older description are deleted.

    Raises InvalidInputError if the job has no `stage` or cannot run in a cluster; JobStateError if it trains on another
    data set; other ClusterErrors.
    """
    problems = checks.target_problems(spec, Target.MPIJOB)
    if spec.stage is None:
        problems.append(Problem(path="stage", value=None, what="is missing", way_out="write stage: s3://bucket/prefix"))
    if problems:
        raise InvalidInputError(problems)
    (job,) = staging.manifests(spec)
    name = job["metadata"]["name"]
    copies = _look(cluster, spec)
    live = next((one for one in copies if one["metadata"]["name"] == name), None)
    for one in outdated(copies, spec):
        _delete(cluster, one, sleep=sleep)
    if live is not None:
        if copy_state(live) is CopyState.RUNNING:
            return StageStart(name=name, namespace=spec.namespace, begun=False)
        _delete(cluster, {**job, "metadata": live["metadata"]}, sleep=sleep)
    for manifest in (*shared_storage.manifests(spec), *network_policies.stage(spec), job):
        cluster.apply(object_path(manifest), manifest, manager=FIELD_MANAGER)
    return StageStart(name=name, namespace=spec.namespace, begun=True)


def wait_for_stage(cluster: ClusterClient, spec: JobSpec, *, sleep: Callable[[float], None]) -> None:
    """Wait for the end of the staging Job. Raises StageFailedError, NotFoundError if it is gone, ClusterError."""
    (job,) = staging.manifests(spec)
    name = job["metadata"]["name"]
    wait = LongWait(sleep=sleep)
    while (state := copy_state(wait.look(lambda: cluster.get(object_path(job))))) is CopyState.RUNNING:
        sleep(_POLL_SECONDS)
    if state is CopyState.FAILED:
        raise StageFailedError(f"{name} has failed: kubectl logs -n {spec.namespace} job/{name} says why; stage again")


def _look(cluster: ClusterClient, spec: JobSpec) -> list[Json]:
    """The Jobs that copy for this job. Raises JobStateError if the job trains on another data set; ClusterError."""
    (config,) = map(object_path, staging.wanted(spec))
    asked = [Read(path=mpijob_path(spec.namespace, spec.name)), Read(path=config), *copies_read(spec)]
    mpijob, live, found = map(_found, cluster.gather(asked))
    copies = list((found or {}).get("items") or ())
    plan_stage_change(spec, {config: live}, copies, mpijob)
    return copies


def _found(answer: Json | ClusterError) -> Json | None:
    if isinstance(answer, NotFoundError):
        return None
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _delete(cluster: ClusterClient, job: Json, *, sleep: Callable[[float], None]) -> None:
    meta = job["metadata"]
    part = Part(kind="Job", name=meta["name"], path=object_path(job), uid=meta["uid"])
    delete_and_wait(cluster, part, sleep=sleep)
