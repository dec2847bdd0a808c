"""Pods of a higher priority that ask for the same accelerators as a job: how many wait, how many are served.

Waiting ones are few and are read at each turn; those that run are as many as the cluster has, and are read seldom.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ForbiddenError, Json
from hvd_elastic.discovery.rules.cluster_views import gpu_resource

SERVED_SECONDS: Final = 15.0
"""How old the number of running pods may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceDemand:
    """Numbers of pods."""

    waiting: int
    served: int
    everywhere: bool
    """False: the caller may see his own namespace only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorClaim:
    """What a job's workers ask for."""

    priority: int
    resource: str
    """That its GPUs are asked for by; empty: it has none."""


def claim_of(worker: Json) -> AcceleratorClaim:
    """The claim of a worker pod."""
    resource = gpu_resource(worker)
    return AcceleratorClaim(priority=_priority(worker), resource=resource if _asks_for(worker, resource) else "")


def count_rivals(pods: Iterable[Json], claim: AcceleratorClaim) -> int:
    """How many of these pods would be served before the job."""
    return sum(_priority(pod) > claim.priority and _asks_for(pod, claim.resource) for pod in pods)


class DemandReader:
    """Counts the rivals of one job. One caller, one thread."""

    def __init__(self, cluster: ClusterClient, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        self._path, self._own = "/api/v1/pods", f"/api/v1/namespaces/{namespace}/pods"
        self._served, self._served_at = 0, float("-inf")

    def read(self, claim: AcceleratorClaim) -> InferenceDemand:
        """The demand now. Raises ClusterError."""
        try:
            return self._read(claim)
        except ForbiddenError:
            if self._path == self._own:
                raise
            self._path = self._own
            return self._read(claim)

    def _read(self, claim: AcceleratorClaim) -> InferenceDemand:
        waiting = self._count("Pending", claim)
        if self._clock() >= self._served_at + SERVED_SECONDS:
            self._served, self._served_at = self._count("Running", claim), self._clock()
        return InferenceDemand(waiting=waiting, served=self._served, everywhere=self._path != self._own)

    def _count(self, phase: str, claim: AcceleratorClaim) -> int:
        return count_rivals(self._cluster.list(self._path, fieldSelector=f"status.phase={phase}"), claim)


def _priority(pod: Json) -> int:
    return int(pod["spec"].get("priority") or 0)


def _asks_for(pod: Json, resource: str) -> bool:
    """Of an extended resource limits and requests are the same."""
    containers = pod["spec"].get("containers") or ()
    return any(resource in ((one.get("resources") or {}).get("limits") or {}) for one in containers)
