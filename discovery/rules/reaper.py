"""Pods that block their own replacement.

The MPI Operator never replaces a Failed pod of a worker (mpi-operator 647), be it evicted by the kubelet or killed with
its spot node. And a pod on a lost node stays Terminating until the node returns. Both are deleted, by UID and only if
they are this job's, after an Event has recorded their reason and last state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView, WorkerView
from hvd_elastic.system.backoff import Backoff

STUCK_SECONDS: Final = 30.0
"""After the end of the grace period; the kubelet of a live node is done by then."""
BACKOFF: Final = Backoff(first_seconds=10.0, most_seconds=300.0)
"""A worker of the same name that fails again is deleted after 10 s, 20 s, 40 s ... 300 s."""
FORGET_SECONDS: Final = 1800.0
"""After this long without a failure, a worker's count of failures starts over."""


class ReapReason(StrEnum):
    """Why a pod is reaped; the reason of the Event."""

    FAILED = "WorkerFailed"
    STUCK = "WorkerStuckOnLostNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reap:
    """One pod to delete."""

    pod: PodView
    reason: ReapReason

    @property
    def message(self) -> str:
        """For the Event and the log."""
        if self.reason is ReapReason.STUCK:
            return f"still Terminating after its grace period on node {self.pod.node}, which is lost: deleted by force"
        state = "; ".join(filter(None, (self.pod.reason, self.pod.last_state))) or "no reason given"
        return f"Failed on node {self.pod.node or 'unknown'} ({state}): deleted so that the operator replaces it"

    def delete_options(self) -> dict[str, Any]:
        """DeleteOptions. The UID protects a successor of the same name."""
        options: dict[str, Any] = {"preconditions": {"uid": self.pod.uid}}
        return options | ({"gracePeriodSeconds": 0} if self.reason is ReapReason.STUCK else {})

    def event(self, namespace: str, now: str) -> dict[str, Any]:
        """The core/v1 Event that records the pod. `now`: RFC 3339."""
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.pod.name}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": self.pod.name,
                "namespace": namespace,
                "uid": self.pod.uid,
            },
            "reason": self.reason,
            "message": self.message,
            "type": "Warning",
            "source": {"component": "hvd-elastic-discovery"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapRecord:
    """How often pods of one name were reaped."""

    times: int
    last: float
    """Unix seconds."""

    def delays(self, now: float) -> bool:
        """Whether it is too early for the next pod of this name. A clock that was set back delays nothing."""
        return self.last <= now < self.next_at()

    def next_at(self) -> float:
        """When the next pod of this name may be deleted, in Unix seconds."""
        return self.last + BACKOFF.ceiling(self.times)


def pods_to_reap(
    pods: Iterable[PodView],
    *,
    owner_uid: str,
    nodes: Mapping[str, NodeView] | None,
    workers: Mapping[str, WorkerView],
    records: Mapping[str, ReapRecord],
    now: float,
    stuck_seconds: float = STUCK_SECONDS,
) -> tuple[Reap, ...]:
    """The pods to delete now. Without nodes, a node counts as lost if its pod is not Ready and does not answer.

    Args:
        pods: candidates; only those of `owner_uid` are reaped.
        owner_uid: the MPIJob's UID; empty reaps nothing.
        nodes: by name; None where they may not be read.
        workers: last answers, by pod UID.
        records: by pod name.
        now: Unix seconds.
        stuck_seconds: how long after its grace period a Terminating pod on a lost node is stuck.
    """
    found = []
    for pod in pods:
        reason = _reason(pod, nodes, workers.get(pod.uid), now - stuck_seconds)
        record = records.get(pod.name)
        if reason and owner_uid and pod.owner_uid == owner_uid and (record is None or not record.delays(now)):
            found.append(Reap(pod=pod, reason=reason))
    return tuple(found)


def record_reap(record: ReapRecord | None, now: float) -> ReapRecord:
    """The record after one more pod of the name was reaped at `now` (Unix seconds), successfully or not."""
    fresh = record is None or now - record.last > FORGET_SECONDS
    return ReapRecord(times=1 if record is None or fresh else record.times + 1, last=now)


def _reason(
    pod: PodView, nodes: Mapping[str, NodeView] | None, worker: WorkerView | None, stuck_before: float
) -> ReapReason | None:
    if pod.phase == "Succeeded" or not pod.is_ending:
        return None
    if pod.deleting_at is None:
        return ReapReason.FAILED
    return ReapReason.STUCK if pod.deleting_at <= stuck_before and _is_lost(pod, nodes, worker) else None


def _is_lost(pod: PodView, nodes: Mapping[str, NodeView] | None, worker: WorkerView | None) -> bool:
    if not pod.node:
        return False
    if nodes is not None:
        return pod.node not in nodes or not nodes[pod.node].ready
    return not pod.ready and (worker is None or worker.lost)
