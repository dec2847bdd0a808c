"""Finds a job by its name, and says what is meant if there is none.

A job is an MPIJob with ANNOTATION_SPEC, v2beta1 (the MPI Operator) or v1 (the legacy training operator).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    ForbiddenError,
    Json,
    NotFoundError,
)
from hvd_elastic.client.connection.known_api import MPIJOBS, NotServedError
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, Exit
from hvd_elastic.system.untrusted_values import json_object

_ALIKE: Final = 0.5
"""Similarity (`difflib`) from which a name is worth mentioning."""


class UnknownJobError(NotFoundError):
    """There is no job of this name."""

    exit_code = Exit.BAD_INPUT


class ForeignJobError(ClusterError):
    """There is an MPIJob of this name, which somebody else made. It is left alone."""

    exit_code = Exit.BAD_INPUT


class NoOperatorError(NotFoundError):
    """The cluster has no MPIJobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job, as the API server has it."""

    job: Json
    now: float
    """Unix seconds of the server's clock, whole seconds; of this machine's if the server told none."""


def jobs_path(version: str, namespace: str | None = None) -> str:
    """The API path of the MPIJobs in a namespace, or in all."""
    root = f"/apis/kubeflow.org/{version}"
    return f"{root}/mpijobs" if namespace is None else f"{root}/namespaces/{namespace}/mpijobs"


def find_job(cluster: ClusterClient, name: str, namespace: str) -> FoundJob:
    """The job of this name.

    Raises UnknownJobError with the nearest names, ForeignJobError, NoOperatorError, or another ClusterError.
    """
    for version in MPIJOBS.versions:
        try:
            answer = cluster.ask("GET", f"{jobs_path(version, namespace)}/{name}")
        except NotFoundError:
            continue
        if not is_ours(answer.body):
            raise foreign(answer.body)
        return FoundJob(job=answer.body, now=(answer.time or datetime.now(UTC)).timestamp())
    raise _unknown(cluster, name, namespace)


def list_jobs(cluster: ClusterClient, namespace: str | None = None) -> Iterator[Json]:
    """The jobs of a namespace, or of all, page by page. Raises NoOperatorError, or another ClusterError."""
    return filter(is_ours, _list_mpijobs(cluster, cluster.list, namespace))


def list_jobs_cached(cluster: ClusterClient, namespace: str | None = None) -> Iterator[Json]:
    """The same from the API server's memory: sooner, and perhaps a moment old."""
    return filter(is_ours, _list_mpijobs(cluster, cluster.list_cached, namespace))


def cluster_time(cluster: ClusterClient) -> float:
    """Unix seconds of the API server's clock; of this machine's if it told none. Raises ClusterError.

    What the cluster's objects say counts by it, and this machine's clock may be minutes off.
    """
    return (cluster.ask("GET", "/version").time or datetime.now(UTC)).timestamp()


def foreign(mpijob: Json) -> ForeignJobError:
    """Why an MPIJob is left alone."""
    name, namespace = mpijob["metadata"]["name"], mpijob["metadata"].get("namespace", "")
    return ForeignJobError(
        f"the MPIJob {name} in namespace {namespace} is not a job of hvd-elastic (it has no annotation "
        f"{ANNOTATION_SPEC}), so it is left alone: use kubectl"
    )


def is_ours(mpijob: Json) -> bool:
    """Whether it was generated from a job description."""
    return ANNOTATION_SPEC in (mpijob["metadata"].get("annotations") or {})


def description_of(mpijob: Json) -> Json:
    """The job description that it carries, as plain data; empty if that cannot be read."""
    try:
        return json_object((mpijob["metadata"].get("annotations") or {}).get(ANNOTATION_SPEC))
    except ValueError:
        return {}


def _list_mpijobs(
    cluster: ClusterClient, read: Callable[[str], Iterator[Json]], namespace: str | None
) -> Iterator[Json]:
    for version in MPIJOBS.versions:
        try:
            yield from read(jobs_path(version, namespace))
            return
        except NotFoundError:
            continue
    raise NoOperatorError(
        f"this cluster has no MPIJobs{_what_else(cluster)}: install the MPI Operator, and see hvd-elastic doctor"
    )


def _what_else(cluster: ClusterClient) -> str:
    """Which other versions it serves: they are not for this release to read, and not for it to deny."""
    try:
        MPIJOBS.served_path(cluster)
    except NotServedError as error:
        return f" that can be read ({error})"
    return ""


def _unknown(cluster: ClusterClient, name: str, namespace: str) -> UnknownJobError:
    names = [job["metadata"]["name"] for job in list_jobs(cluster, namespace)]
    said = f"there is no job {name} in namespace {namespace}"
    if near := get_close_matches(name, names, n=3, cutoff=_ALIKE):
        return UnknownJobError(f"{said}: did you mean {' or '.join(near)}?")
    if there := _namespaces_with(cluster, name):
        return UnknownJobError(f"{said}, but in {' and '.join(there)}: choose it with -n")
    return UnknownJobError(f"{said}; hvd-elastic list -A shows all jobs")


def _namespaces_with(cluster: ClusterClient, name: str) -> list[str]:
    try:
        jobs = list(list_jobs(cluster))
    except (ForbiddenError, NotFoundError):
        return []
    return sorted(job["metadata"]["namespace"] for job in jobs if job["metadata"]["name"] == name)
