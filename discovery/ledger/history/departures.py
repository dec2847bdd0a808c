"""Why a worker pod goes, from what is known of it when that shows: values in, a value out.

The reasons of the condition DisruptionTarget are those of Kubernetes 1.34: `PreemptionByScheduler`
(`pkg/scheduler/framework/preemption`), `EvictionByEvictionAPI` (`pkg/registry/core/pod/storage/eviction.go`),
`DeletionByTaintManager` (`pkg/controller/tainteviction`), `DeletionByPodGC` (`pkg/controller/podgc`) and
`TerminationByKubelet`, whose pods say more in `status.reason`: `Preempting` (`pkg/kubelet/preemption`), `Evicted`
(`pkg/kubelet/eviction`), `Terminated` (`pkg/kubelet/nodeshutdown`).

Those of TerminationTarget are Kueue's, 0.16 to 0.19: `WorkloadEvictedDueTo` and the reason of the Workload's condition
Evicted (`pkg/controller/jobframework/reconciler.go`, `stopJob`), and others without a reason (`stop_reason.go`). The
message of a preemption names whom it was for (`pkg/scheduler/preemption/preemption.go`, `preemptionMessage`).
"""

import re
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.ledger.entries import Departure
from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView

_BY_POD_REASON: Final = {
    "Preempting": Departure.PREEMPTED,
    "Evicted": Departure.EVICTED,
    "NodeLost": Departure.NODE_LOST,
    "Terminated": Departure.DRAINED,
    "NodeShutdown": Departure.DRAINED,
    "Shutdown": Departure.DRAINED,
}
"""By `status.reason`, which kubelets set beside the condition, or in its place before Kubernetes had it."""


_EVICTED: Final = re.compile(r"Workload(?:EvictedDueTo)?(?=[A-Z])")
_TAKER: Final = re.compile(
    r"JobUID: (?P<uid>[0-9A-Za-z-]{1,64})\)[^;]{0,200}; preemptor path: (?P<cohorts_and_queue>[-./0-9a-z]{1,1253});"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What besides the pod tells why it goes."""

    node: NodeView | None = None
    """None if it is not there, or may not be read."""
    nodes_known: bool = False
    victim: bool = False
    """Whether a smaller job was asked for, and this worker is too many."""
    slow: bool = False
    """Whether the sidecar replaces it, because its rank is slow."""
    job_over: bool = False
    """Whether the job is suspended, or has ended."""


def is_leaving(pod: PodView) -> bool:
    """Whether it is certain that the pod goes."""
    return bool(pod.disruption) or pod.deleting_at is not None or pod.has_ended


def departure(pod: PodView, around: Surroundings) -> tuple[Departure, str]:  # noqa: PLR0911 - a table, row by row
    """Why a pod goes that is leaving, or is gone already; and the words of whoever took it."""
    if pod.disruption:
        return _by_disruption(pod, around)
    if around.job_over:
        return Departure.SUSPENDED, ""
    if around.victim:
        return Departure.SCALED_DOWN, ""
    if pod.reason in _BY_POD_REASON:
        return _BY_POD_REASON[pod.reason], pod.reason
    if pod.has_ended and pod.deleting_at is None:
        return Departure.FAILED, pod.last_state or pod.reason
    if around.slow:
        return Departure.SLOW, ""
    if around.node and around.node.draining:
        return Departure.DRAINED, around.node.draining
    if pod.ready_withdrawn or _is_node_lost(around):
        return Departure.NODE_LOST, pod.node
    return Departure.DELETED, ""


def taker(pod: PodView) -> tuple[str, str]:
    """For whom Kueue has preempted a pod: `uid:UID` of a pod or a job, and its ClusterQueue; empty: it has not."""
    found = _TAKER.search(pod.eviction)
    return (f"uid:{found['uid']}", found["cohorts_and_queue"].rpartition("/")[2][:253]) if found else ("", "")


def _by_disruption(pod: PodView, around: Surroundings) -> tuple[Departure, str]:
    signal = _emptied(around.node)
    match pod.disruption:
        case "PreemptionByScheduler" | "WorkloadEvictedDueToPreempted":
            return Departure.PREEMPTED, ""
        case "DeletionByPodGC":
            return Departure.NODE_LOST, pod.disruption
        case "DeletionByTaintManager" if pod.ready_withdrawn or _is_node_lost(around):
            return Departure.NODE_LOST, pod.node
        case "DeletionByTaintManager" | "DeletionByDeviceTaintManager":
            return Departure.DRAINED, signal or pod.disruption
        case "EvictionByEvictionAPI" if signal:
            return Departure.DRAINED, signal
        case _:
            by_kueue = f"Kueue: {_EVICTED.sub('', pod.disruption)}" if pod.eviction else ""
            return _BY_POD_REASON.get(pod.reason, Departure.EVICTED), pod.reason or by_kueue or pod.disruption


def _emptied(node: NodeView | None) -> str:
    """Why a node is emptied. `kubectl drain` cordons it before it evicts."""
    return (node.draining or node.at_risk) if node else ""


def _is_node_lost(around: Surroundings) -> bool:
    return around.nodes_known and (around.node is None or not around.node.ready)
