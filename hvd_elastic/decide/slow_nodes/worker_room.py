"""On which nodes a job's workers may be, and how many of them fit there."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, Placement
from hvd_elastic.decide.slow_nodes.exclusion_decision import WorkerRoom
from hvd_elastic.discovery.kube.node_exclusion import HOSTNAME
from hvd_elastic.system import quantity

Json = Mapping[str, Any]

KARPENTER: Final = "karpenter.sh/nodepool"
"""On each node that Karpenter makes (https://karpenter.sh/docs/concepts/scheduling/#well-known-labels)."""
_PODS: Final = "pods"
"""How many pods a node takes, among what it has to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNeeds:
    """What a worker asks of its node."""

    asked: Mapping[str, Decimal]
    """How much of each resource."""
    placement: Placement

    @classmethod
    def from_json(cls, pod: Json) -> "WorkerNeeds":
        """Of a pod's spec. What a container is limited to it requests, unless it says otherwise."""
        asked = {_PODS: Decimal(1)}
        for container in pod["containers"]:
            resources = container.get("resources") or {}
            for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                asked[name] = asked.get(name, Decimal(0)) + quantity.parse(str(amount))
        return cls(asked=asked, placement=Placement.from_json(pod))

    def room_on(self, node: Json) -> WorkerRoom | None:
        """None: the node is cordoned or not Ready, or no worker may be bound to it."""
        found = GpuNode.from_json(node, _PODS)
        if found is None or not self.placement.fits(found):
            return None
        has: Mapping[str, object] = node["status"]["allocatable"]
        parts = (quantity.parse(str(has.get(name, 0))) // amount for name, amount in self.asked.items() if amount)
        return WorkerRoom(
            name=found.name,
            workers=int(min(parts)),
            named_by_host=found.labels.get(HOSTNAME) == found.name,
            by_karpenter=KARPENTER in found.labels,
        )
