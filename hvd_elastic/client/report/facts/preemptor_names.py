"""Names of what took workers' GPUs, where the sidecar and the scheduler tell UIDs alone.

They are looked for with the rights of who asks, and in the job's own namespace if these do not reach further. What has
gone keeps its UID.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ForbiddenError,
    Json,
    NotFoundError,
    RefusedError,
)
from hvd_elastic.client.report.facts.workloads import workloads_of
from hvd_elastic.discovery.ledger.entries import Entry, WorkerLeaving
from hvd_elastic.discovery.ledger.preemptor import UnnamedPreemptor, preemptor

_LATELY_SECONDS: Final = 3600.0
"""So long one is looked for that the ledger tells of: as long as Events are kept."""
_MOST_ASKED: Final = 8

_T = TypeVar("_T")


class PreemptorNames:
    """The names of those of whom UIDs are told, as far as they are found. Making one may raise ClusterError."""

    def __init__(
        self, cluster: ClusterClient, namespace: str, *, ledger: Sequence[Entry], events: Iterable[Json], now: float
    ) -> None:
        """`now`: Unix seconds of the API server's clock."""
        lately = (
            entry.by
            for entry in reversed(ledger)
            if isinstance(entry, WorkerLeaving) and entry.unix > now - _LATELY_SECONDS
        )
        told = dict.fromkeys((*lately, *map(preemptor, events)))
        unnamed = ((by, one) for by in told if (one := UnnamedPreemptor.of(by)))
        self._by = _found(cluster, namespace, dict(islice(unnamed, _MOST_ASKED)))

    def of_entry(self, entry: Entry) -> Entry:
        """The ledger's, with the name."""
        return replace(entry, by=self._by.get(entry.by, entry.by)) if isinstance(entry, WorkerLeaving) else entry

    def of_event(self, event: Json) -> Json:
        """The scheduler's, with the name where it wrote it up to Kubernetes 1.35."""
        namespace, _, pod = self._by.get(preemptor(event), "").partition("/")
        return {**event, "related": {"kind": "Pod", "namespace": namespace, "name": pod}} if pod else event


def _found(cluster: ClusterClient, namespace: str, unnamed: Mapping[str, UnnamedPreemptor]) -> Mapping[str, str]:
    """By what is told of it. Kueue, which tells no node, knows a pod or a job by its Workload."""

    def seen(look: Callable[[str], _T], otherwise: _T) -> _T:
        for here in ("", f"/namespaces/{namespace}"):
            with contextlib.suppress(ForbiddenError, NotFoundError, RefusedError):
                return look(here)
        return otherwise

    @functools.cache
    def pods(selector: str) -> Sequence[Json]:
        return seen(lambda here: tuple(cluster.list(f"/api/v1{here}/pods", fieldSelector=selector)), ())

    queued = [one.uid for one in unnamed.values() if not one.node]
    nothing: dict[str, Json] = {}
    workloads = seen(lambda here: workloads_of(cluster, here, queued), nothing)
    owners = {uid: _owner(workload["metadata"]) for uid, workload in workloads.items()}
    return {by: name for by, one in unnamed.items() if (name := one.named(pods) or owners.get(one.uid, ""))}


def _owner(workload: Json) -> str:
    named = next(iter(workload.get("ownerReferences") or ()), workload)
    return f"{workload['namespace']}/{named['name']}"
