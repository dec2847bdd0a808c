"""How the clouds and their node managers say that a node is about to go.

Programs that watch the cloud's own notices put taints on the node: the node termination handler, Karpenter, the Cluster
Autoscaler, the kubelet at its graceful shutdown.
"""

from collections.abc import Iterable, Mapping
from typing import Final

DRAINING_TAINTS: Final = frozenset(
    {
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "ToBeDeletedByClusterAutoscaler",
        "cloud.google.com/impending-node-termination",
        "node.kubernetes.io/out-of-service",
        "remediator.kubernetes.azure.com/unschedulable",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
"""A node with one of these goes within minutes, without exception: its workers leave at once."""

AT_RISK_TAINTS: Final = frozenset({"aws-node-termination-handler/rebalance-recommendation"})
"""The node may go, or may stay for days."""

AT_RISK_CONDITIONS: Final = frozenset({"VMEventScheduled"})
"""AKS' node problem detector: something is scheduled for the machine. That may be a freeze of seconds as well as a
preemption; a preemption brings the remediator's taint too."""

SPOT_LABELS: Final = (
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)


def draining(taints: Iterable[str]) -> str:
    """The key among `taints` that says the node is being emptied; empty if there is none."""
    return min(DRAINING_TAINTS.intersection(taints), default="")


def at_risk(taints: Iterable[str], conditions: Mapping[str, str | None], *, cordoned: bool) -> str:
    """Why the node may go soon; empty if nothing says so. `conditions`: type to status."""
    true = {kind for kind, status in conditions.items() if status == "True"}
    signals = AT_RISK_TAINTS.intersection(taints) | AT_RISK_CONDITIONS.intersection(true)
    return min(signals, default="cordoned" if cordoned else "")


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether the labels mark the node as capacity that the cloud may take back."""
    return any(labels.get(key) == value for key, value in SPOT_LABELS)
