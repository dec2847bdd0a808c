"""How the clouds and their node managers say that a node is about to go.

Taints are facts of the cluster: whoever watches the cloud's own notice (the node termination handler, Karpenter, the
Cluster Autoscaler, the kubelet's graceful shutdown) puts them there.
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
"""A node with one of these goes within minutes, and nothing takes it back: its workers leave at once."""

AT_RISK_TAINTS: Final = frozenset({"aws-node-termination-handler/rebalance-recommendation"})
"""The node may go, or may stay for days."""

AT_RISK_CONDITIONS: Final = frozenset({"VMEventScheduled"})
"""AKS' node problem detector: something is scheduled for the machine. A freeze of seconds says the same as a
preemption, which brings the remediator's taint as well."""

SPOT_LABELS: Final = (
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)


def draining(taints: Iterable[str]) -> str:
    """The key among `taints` that says the node is being emptied; empty for none."""
    return min(DRAINING_TAINTS.intersection(taints), default="")


def at_risk(taints: Iterable[str], conditions: Mapping[str, str | None], *, cordoned: bool) -> str:
    """Why the node may go soon; empty where nothing says so. `conditions` are type to status."""
    true = {kind for kind, status in conditions.items() if status == "True"}
    said = AT_RISK_TAINTS.intersection(taints) | AT_RISK_CONDITIONS.intersection(true)
    return min(said, default="cordoned" if cordoned else "")


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether the node's labels name it as capacity that the cloud may take back."""
    return any(labels.get(key) == value for key, value in SPOT_LABELS)
