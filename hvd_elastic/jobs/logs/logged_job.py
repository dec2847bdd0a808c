"""The MPIJob whose log somebody wants, by its name."""

import contextlib
from difflib import get_close_matches
from typing import Final

from hvd_elastic.jobs.cluster_client import Json, NotFoundError
from hvd_elastic.jobs.logs.job_log import LogSource

_VERSIONS: Final = ("v2beta1", "v1")
"""The MPI Operator serves the first one, the legacy training operator the second. A cluster has one of them."""


def find_mpijob(source: LogSource, name: str, namespace: str) -> Json:
    """The job, whoever made it. Raises NotFoundError with the nearest names, and every other ClusterError."""
    for version in _VERSIONS:
        with contextlib.suppress(NotFoundError):
            return source.get(f"{_collection(version, namespace)}/{name}")
    raise NotFoundError(_unknown(source, name, namespace))


def _unknown(source: LogSource, name: str, namespace: str) -> str:
    names = []
    for version in _VERSIONS:
        with contextlib.suppress(NotFoundError):
            names += [job["metadata"]["name"] for job in source.list(_collection(version, namespace))]
    near = get_close_matches(name, names) or names[:3]
    there = f"there are {', '.join(near)}" if near else "there is none"
    return f"there is no job {name} in namespace {namespace}: {there}"


def _collection(version: str, namespace: str) -> str:
    return f"/apis/kubeflow.org/{version}/namespaces/{namespace}/mpijobs"
