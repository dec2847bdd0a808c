"""Pods that block their own replacement.

The MPI Operator makes a worker's pod only where there is none of its name (mpi-operator 0.8.2,
`pkg/controller/mpi_job_controller.go`, `getOrCreateWorker`). So it never replaces one that has ended, be it evicted,
killed with its spot node (mpi-operator 647), or told to end by a signal; and one on a lost node only after minutes.
Such a pod is deleted, by UID and only if it is this job's, after an Event has recorded its reason and last state.

**By force** means that Kubernetes forgets the pod without a word from its kubelet. Two facts, from two witnesses, make
that safe for a pod whose end the kubelet has not reported: the control plane no longer believes in the node, and the
worker does not answer this side. Should its process still run behind a cut cable, nothing that it does counts. The
launcher has given up its ssh session, its host `UID-GENERATION` is no other pod's, a checkpoint of an earlier
incarnation is fenced off, and the kubelet ends what the API server no longer knows as soon as it is back.

Either fact alone proves nothing. After an outage of the API server the node controller may take Ready from every pod
for a moment; and a worker that only this side cannot reach may train with the others.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView
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
    ENDED = "WorkerEnded"
    """With exit code 0, though nobody has deleted its pod: something sent PID 1 a signal."""
    LOST = "WorkerLost"
    """With its node: the node controller says so before anyone deletes the pod."""
    STUCK = "WorkerStuckTerminating"
    SLOW = "WorkerSlow"
    """It trains, slower than the others, and the job asks for another one (`slow_workers.py`)."""


BY_FORCE: Final = frozenset({ReapReason.LOST, ReapReason.STUCK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reap:
    """One pod to delete."""

    pod: PodView
    reason: ReapReason
    known: str
    """What is known of it, as a sentence without its end."""

    @property
    def by_force(self) -> bool:
        """Whether the API server forgets the pod at once."""
        return self.reason in BY_FORCE

    @property
    def message(self) -> str:
        """For the Event and the log."""
        return f"{self.known}: deleted{' by force' if self.by_force else ''} so that the operator replaces it"

    def delete_options(self) -> dict[str, Any]:
        """DeleteOptions. The UID protects a successor of the same name."""
        options: dict[str, Any] = {"preconditions": {"uid": self.pod.uid}}
        return options | ({"gracePeriodSeconds": 0} if self.by_force else {})

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
    silent: Container[str],
    records: Mapping[str, ReapRecord],
    now: float,
    stuck_seconds: float = STUCK_SECONDS,
) -> tuple[Reap, ...]:
    """The pods to delete now.

    Args:
        pods: candidates; only those of `owner_uid` are reaped.
        owner_uid: the MPIJob's UID; empty reaps nothing.
        nodes: by name; None where they may not be read.
        silent: UIDs of the pods that have missed several probes in a row.
        records: by pod name.
        now: Unix seconds.
        stuck_seconds: how long after its grace period a Terminating pod is stuck.
    """
    found = []
    for pod in pods:
        if not owner_uid or pod.owner_uid != owner_uid:
            continue
        record = records.get(pod.name)
        verdict = _verdict(pod, nodes, is_silent=pod.uid in silent, stuck_before=now - stuck_seconds)
        if verdict and (record is None or not record.delays(now)):
            found.append(Reap(pod=pod, reason=verdict[0], known=verdict[1]))
    return tuple(found)


def record_reap(record: ReapRecord | None, now: float) -> ReapRecord:
    """The record after one more pod of the name was reaped at `now` (Unix seconds), successfully or not."""
    fresh = record is None or now - record.last > FORGET_SECONDS
    return ReapRecord(times=1 if record is None or fresh else record.times + 1, last=now)


def _verdict(
    pod: PodView, nodes: Mapping[str, NodeView] | None, *, is_silent: bool, stuck_before: float
) -> tuple[ReapReason, str] | None:
    """Why the pod is to be deleted and what is known of it; None if it is not."""
    is_overdue = pod.deleting_at is not None and pod.deleting_at <= stuck_before
    where = f"on node {pod.node or 'unknown'}"
    if pod.has_ended:
        return _verdict_on_ended(pod, where, is_overdue=is_overdue)
    if not is_silent:
        return None
    if pod.ready_withdrawn:
        return ReapReason.LOST, f"the node controller took its condition Ready {where}, and it does not answer"
    fault = _node_fault(pod, nodes) if is_overdue else ""
    if not fault:
        return None
    return ReapReason.STUCK, f"still Terminating after its grace {where}, which {fault}, and it does not answer"


def _verdict_on_ended(pod: PodView, where: str, *, is_overdue: bool) -> tuple[ReapReason, str] | None:
    if is_overdue:
        return ReapReason.STUCK, f"still Terminating after its grace, though its containers have ended {where}"
    if pod.deleting_at is not None:
        return None
    state = "; ".join(filter(None, (pod.reason, pod.last_state))) or "no reason given"
    if pod.phase == "Failed":
        return ReapReason.FAILED, f"Failed {where} ({state})"
    return ReapReason.ENDED, f"ended {where} though nobody has deleted it ({state})"


def _node_fault(pod: PodView, nodes: Mapping[str, NodeView] | None) -> str:
    """What is known to be wrong with the pod's node; empty if nothing is, or if nodes may not be read."""
    if nodes is None or not pod.node:
        return ""
    node = nodes.get(pod.node)
    if node is None:
        return "is no longer there"
    return "" if node.ready else "is not Ready"
