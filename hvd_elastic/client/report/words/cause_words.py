"""Causes in plain words: why a worker has gone, and what the scheduler says of one that waits."""

import re
from collections.abc import Iterable
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.discovery.kube.node_taints import untolerated
from hvd_elastic.discovery.ledger.entries import Departure, WorkerLeaving
from hvd_elastic.system.plain_words import cut_middle

_WORDS: Final = {
    Departure.PREEMPTED: "preempted",
    Departure.EVICTED: "evicted",
    Departure.NODE_LOST: "lost with its node",
    Departure.DRAINED: "drained with its node",
    Departure.SCALED_DOWN: "no longer asked for",
    Departure.SUSPENDED: "stopped with the job",
    Departure.SLOW: "replaced, because its rank was slow",
    Departure.FAILED: "failed",
    Departure.DELETED: "deleted, nothing says by whom",
}

BY_CONDITION: Final = {
    "PreemptionByScheduler": Departure.PREEMPTED,
    "WorkloadEvictedDueToPreempted": Departure.PREEMPTED,
    "EvictionByEvictionAPI": Departure.EVICTED,
    "TerminationByKubelet": Departure.EVICTED,
    "DeletionByTaintManager": Departure.NODE_LOST,
    "DeletionByPodGC": Departure.NODE_LOST,
}
"""Reasons of a pod's condition DisruptionTarget (Kubernetes 1.34, `pkg/apis/core/types.go` and
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions), and the one of Kueue's
TerminationTarget that is no eviction."""

_AFTERTHOUGHTS: Final = re.compile(r"\.? (no new claims to deallocate|preemption: ).*", re.DOTALL)
_UNNAMED: Final = "untolerated taint(s)"
_LONGEST: Final = 160


def departure_words(leaving: WorkerLeaving) -> str:
    """`preempted by inference/web-1`, `drained with its node (spot interruption)`."""
    by = f"{leaving.by} of queue {leaving.queue}" if leaving.queue else leaving.by
    return _WORDS[leaving.why] + (f" by {by}" if by else "") + (f" ({leaving.detail})" if leaving.detail else "")


def disruption_words(reason: str) -> str:
    """The reason of a DisruptionTarget condition in words; one that is not known stays as it is."""
    departure = BY_CONDITION.get(reason)
    return _WORDS[departure] if departure else reason


def scheduler_words(message: str) -> str:
    """What the scheduler says of a pod that it cannot place, without what it says of claims and preemption.

    `0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: ...` becomes
    `0/2 nodes are available: 2 Insufficient nvidia.com/gpu`.
    """
    return cut_middle(_AFTERTHOUGHTS.sub("", message).strip().rstrip("."), _LONGEST)


def queue_words(queue: str, workload: Json | None) -> str:
    """What Kueue says of what waits in a LocalQueue: `queue research: insufficient unused quota ...`."""
    if workload is None:
        return f"Kueue has not looked at it in queue {queue}: is there such a LocalQueue?"
    for one in (workload.get("status") or {}).get("conditions") or ():
        if one["type"] == "QuotaReserved":
            said = scheduler_words(str(one.get("message") or one.get("reason") or ""))
            return f"queue {queue}: {'quota is reserved' if one.get('status') == 'True' else said}"
    return f"queue {queue}: not yet looked at"


def placement_words(pod: Json, nodes: Iterable[Json] = ()) -> str:
    """Why a pod has no node. `nodes`: the cluster's, if they are known: their taints are named."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one["type"] == "PodScheduled":
            return with_taints(scheduler_words(str(one.get("message") or one.get("reason") or "")), pod, nodes)
    return "the scheduler has not looked at it"


def lacks_taints(pod: Json) -> bool:
    """Whether the scheduler says that taints keep a pod off, and not which ones.

    So it does from Kubernetes 1.35 on, and in later patch releases of those before (kubernetes pull request 134740).
    """
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "PodScheduled" and _UNNAMED in str(one.get("message") or "") for one in conditions)


def with_taints(message: str, pod: Json, nodes: Iterable[Json]) -> str:
    """The scheduler's words with the taints that they do not name: `untolerated taint(s) {team=vision:NoSchedule}`.

    It looks at taints before it looks at selectors, but not at all at a node that is cordoned.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    free = (node for node in nodes if not (node.get("spec") or {}).get("unschedulable"))
    taints = dict.fromkeys(str(taint) for node in free for taint in untolerated(tolerations, node))
    named = cut_middle(", ".join(taints), _LONGEST)
    return message.replace(_UNNAMED, f"{_UNNAMED} {{{named}}}", 1) if named else message
