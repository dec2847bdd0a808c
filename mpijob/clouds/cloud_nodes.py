"""What the nodes of each cloud look like: labels, taints, and how long a reclaimed machine waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from hvd_elastic.mpijob.clouds import gpu_types
from hvd_elastic.mpijob.clouds.accelerators import NVIDIA
from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.clouds.gpu_types import GpuType

Requirement: TypeAlias = dict[str, Any]
"""One requirement of a node selector term (`matchExpressions`)."""
Term: TypeAlias = tuple[Requirement, ...]
"""A node selector term: a node must meet all its requirements."""


def one_of(key: str, *values: str) -> Requirement:
    """The node's label has one of the values."""
    return {"key": key, "operator": "In", "values": list(values)}


def none_of(key: str, *values: str) -> Requirement:
    """The node's label has none of the values, or is absent."""
    return {"key": key, "operator": "NotIn", "values": list(values)}


def tolerated(key: str, value: str | None = None, effect: str | None = "NoSchedule") -> dict[str, Any]:
    """A toleration of one taint."""
    toleration: dict[str, Any] = {"key": key, "operator": "Exists" if value is None else "Equal"}
    if value is not None:
        toleration["value"] = value
    if effect is not None:
        toleration["effect"] = effect
    return toleration


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioner:
    """One way in which a cloud makes nodes. Each way has its own node labels."""

    spot: Term = ()
    on_demand: Term = ()
    gpus: Mapping[GpuType, Term] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What a cloud's nodes look like."""

    provisioners: tuple[Provisioner, ...]
    """A node may come from any of them: each becomes a term of its own in the node affinity."""
    spot_tolerations: tuple[dict[str, Any], ...] = ()
    """Tolerations of the taints of spot nodes."""
    spot_grace_seconds: int | None = None
    """How long a reclaimed machine waits for its pods. None: as long as their own grace period."""

    def knows(self, gpu: GpuType) -> bool:
        """Whether the cloud has nodes with this GPU."""
        return any(gpu in provisioner.gpus for provisioner in self.provisioners)


_PRODUCTS: Final = {gpu: (one_of(NVIDIA.product_label, *names),) for gpu, names in gpu_types.PRODUCTS.items()}

_ANY: Final = Nodes(provisioners=(Provisioner(gpus=_PRODUCTS),))

_NODE_GROUPS: Final = Provisioner(
    spot=(one_of("eks.amazonaws.com/capacityType", "SPOT"),),
    on_demand=(one_of("eks.amazonaws.com/capacityType", "ON_DEMAND"),),
    gpus={gpu: (one_of("k8s.amazonaws.com/accelerator", name),) for gpu, name in gpu_types.EKS_ACCELERATORS.items()},
)


def _karpenter_gpu(gpu: GpuType) -> Term:
    term = (one_of("karpenter.k8s.aws/instance-gpu-name", gpu_types.KARPENTER_GPUS[gpu]),)
    memory = gpu_types.KARPENTER_GPU_MEMORY.get(gpu)
    return (*term, one_of("karpenter.k8s.aws/instance-gpu-memory", memory)) if memory else term


_KARPENTER: Final = Provisioner(
    spot=(one_of("karpenter.sh/capacity-type", "spot"),),
    on_demand=(one_of("karpenter.sh/capacity-type", "on-demand"),),
    gpus={gpu: _karpenter_gpu(gpu) for gpu in gpu_types.KARPENTER_GPUS},
)

_EKS: Final = Nodes(provisioners=(_NODE_GROUPS, _KARPENTER), spot_grace_seconds=100)

_GKE: Final = Nodes(
    provisioners=(
        Provisioner(
            spot=(one_of("cloud.google.com/gke-spot", "true"),),
            on_demand=(none_of("cloud.google.com/gke-spot", "true"),),
            gpus={
                gpu: (one_of("cloud.google.com/gke-accelerator", name),)
                for gpu, name in gpu_types.GKE_ACCELERATORS.items()
            },
        ),
    ),
    spot_tolerations=(tolerated("cloud.google.com/gke-spot", "true"),),
    spot_grace_seconds=15,
)

_AKS: Final = Nodes(
    provisioners=(
        Provisioner(
            spot=(one_of("kubernetes.azure.com/scalesetpriority", "spot"),),
            on_demand=(none_of("kubernetes.azure.com/scalesetpriority", "spot"),),
            gpus={gpu: _PRODUCTS[gpu] for gpu in GpuType if gpu in gpu_types.AKS_GPUS},
        ),
    ),
    spot_tolerations=(tolerated("kubernetes.azure.com/scalesetpriority", "spot"),),
    spot_grace_seconds=25,
)

NODES: Final = {Cloud.ANY: _ANY, Cloud.EKS: _EKS, Cloud.GKE: _GKE, Cloud.AKS: _AKS}
"""The nodes of each cloud."""


def spot_grace_limit(cloud: Cloud, capacity: Capacity) -> int | None:
    """Seconds that a reclaimed machine waits for its pods. None: the cloud sets no limit, or no worker runs on spot."""
    return None if capacity is Capacity.ON_DEMAND else NODES[cloud].spot_grace_seconds
