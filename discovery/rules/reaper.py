"""Pods that stand in the way of their own replacement.

The MPI Operator never makes a worker again whose pod is Failed (mpi-operator 647): evicted by the kubelet, killed with
its spot node. And a pod on a lost node stays Terminating until the node returns. Both are deleted here, by UID and only
if they are this job's, after an Event has kept their reason and last state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.discovery.rules.views import NodeView, PodView, WorkerView

STUCK_SECONDS: Final = 30.0
"""After the grace has ended: the kubelet of a node that lives is done by then."""
FIRST_AGAIN_SECONDS: Final = 10.0
MAX_AGAIN_SECONDS: Final = 300.0
"""A worker of the same name that fails again is deleted after 10 s, 20 s, 40 s ... at most this."""
FORGET_SECONDS: Final = 1800.0
"""A worker that did not fail for so long starts anew."""


class ReapReason(StrEnum):
    """Why a pod is reaped; the reason of the Event."""

    FAILED = "WorkerFailed"
    STUCK = "WorkerStuckOnLostNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reap:
    """One pod to delete."""

    pod: PodView
    why: ReapReason

    @property
    def message(self) -> str:
        """For the Event and the log."""
        if self.why is ReapReason.STUCK:
            return f"still Terminating after its grace on node {self.pod.node}, which is lost: deleted by force"
        state = "; ".join(filter(None, (self.pod.reason, self.pod.last_state))) or "no reason given"
        return f"Failed on node {self.pod.node or 'unknown'} ({state}): deleted so that the operator makes it again"

    def delete_options(self) -> dict[str, Any]:
        """The UID keeps a successor of the same name safe."""
        options: dict[str, Any] = {"preconditions": {"uid": self.pod.uid}}
        return options | ({"gracePeriodSeconds": 0} if self.why is ReapReason.STUCK else {})

    def event(self, namespace: str, now: str) -> dict[str, Any]:
        """The core/v1 Event that remembers the pod. `now`: RFC 3339."""
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
            "reason": self.why,
            "message": self.message,
            "type": "Warning",
            "source": {"component": "hvd-elastic-discovery"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """What was done about the workers of one name."""

    uid: str
    times: int
    last: float
    """Unix seconds."""

    def holds(self, now: float) -> bool:
        """Whether it is too early for the next pod of this name; a clock that was set back holds nothing."""
        return self.last <= now < self.next_at()

    def next_at(self) -> float:
        """When the next pod of this name may be deleted."""
        return self.last + min(FIRST_AGAIN_SECONDS * 2.0 ** min(self.times - 1, 10), MAX_AGAIN_SECONDS)


def due(
    pods: Iterable[PodView],
    *,
    owner_uid: str,
    nodes: Mapping[str, NodeView] | None,
    workers: Mapping[str, WorkerView],
    records: Mapping[str, PodRecord],
    now: float,
    stuck_seconds: float = STUCK_SECONDS,
) -> tuple[Reap, ...]:
    """The pods to delete now. `nodes` is None where they may not be read; `now` and all times are Unix seconds.

    Without nodes, a node counts as lost when its pod's Ready is False and the worker does not answer.
    """
    found = []
    for pod in pods:
        why = _why(pod, nodes, workers.get(pod.uid), now - stuck_seconds)
        record = records.get(pod.name)
        if why and owner_uid and pod.owner_uid == owner_uid and (record is None or not record.holds(now)):
            found.append(Reap(pod=pod, why=why))
    return tuple(found)


def note(record: PodRecord | None, pod: PodView, now: float) -> PodRecord:
    """What to remember once `pod` was dealt with, whether that worked or not."""
    fresh = record is None or now - record.last > FORGET_SECONDS
    return PodRecord(uid=pod.uid, times=1 if record is None or fresh else record.times + 1, last=now)


def _why(
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
