"""How the clouds and their node managers say that a node is about to go.

Programs that watch the cloud's own notices put taints on the node before they empty it:

- the node termination handler of AWS (`pkg/node/node.go`): with `enable*Draining`, and only with `taintNode`;
- Karpenter (`pkg/apis/v1/taints.go`), also AKS' node auto-provisioning, which is Karpenter; the Cluster Autoscaler;
- GKE, for nodes with GPUs, and the older handler of Google (`deploy/k8s.yaml` of GoogleCloudPlatform/
  k8s-node-termination-handler);
- AKS' remediator (https://learn.microsoft.com/azure/aks/node-auto-drain; until 2023 it had another domain), and the
  handler for AKS that others keep (`pkg/api/api.go` of maksim-paskal/aks-node-termination-handler).

A spot machine of GKE has no such program: its kubelet says itself that it shuts down.
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
        "remediator.aks.microsoft.com/unschedulable",
        "aks-node-termination-handler/preempt",
        "aks-node-termination-handler/terminate",
        "aks-node-termination-handler/redeploy",
        "aks-node-termination-handler/reboot",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
"""A node with one of these goes within minutes, without exception: its workers leave at once."""

SHUTTING_DOWN: Final = "node is shutting down"
"""What a kubelet says in the message of a Ready condition that is False, as soon as its machine begins to shut down and
before it ends any pod (Kubernetes 1.34, `pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go`, `ShutdownStatus`;
`pkg/kubelet/nodestatus/setters.go`, `ReadyCondition`)."""

DELETED: Final = "node was deleted"
"""Said of a pod whose Node object is gone: Karpenter, the Cluster Autoscaler and the clouds' controllers delete it."""

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


def draining(taints: Iterable[str], why_not_ready: str = "") -> str:
    """What says that the node is being emptied: a key among `taints`, or its kubelet; empty if nothing does.

    `why_not_ready` is the message of its Ready condition; empty while that is True.
    """
    shuts_down = SHUTTING_DOWN if SHUTTING_DOWN in why_not_ready else ""
    return min(DRAINING_TAINTS.intersection(taints), default=shuts_down)


def at_risk(taints: Iterable[str], conditions: Mapping[str, str | None], *, cordoned: bool) -> str:
    """Why the node may go soon; empty if nothing says so. `conditions`: type to status."""
    true = {kind for kind, status in conditions.items() if status == "True"}
    signals = AT_RISK_TAINTS.intersection(taints) | AT_RISK_CONDITIONS.intersection(true)
    return min(signals, default="cordoned" if cordoned else "")


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether the labels mark the node as capacity that the cloud may take back."""
    return any(labels.get(key) == value for key, value in SPOT_LABELS)
