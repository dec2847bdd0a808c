"""How much of a machine its pods get, at most: capacity less what the cloud says that it reserves.

- EKS: 255Mi and 11Mi for each pod that the node may hold; CPUs in steps (kubelet's defaults by nodeadm of
  awslabs/amazon-eks-ami).
- GKE: memory and CPUs in steps ("Plan GKE Standard node sizes",
  cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes).
- AKS from 1.29: 20 MB for each pod and 50 MB, at most a quarter; CPUs in steps ("Node resource reservations",
  learn.microsoft.com/azure/aks/node-resource-reservations).
- All: 100Mi below which kubelet evicts.

Each is the least that is reserved. Nodes may hold more pods than assumed here, and firmware and kernel take memory
before kubelet counts it: 7.5%, Karpenter assumes (VM_MEMORY_OVERHEAD_PERCENT). So what is too large by this is too
large; what is not may still be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import inf
from typing import Final

from hvd_elastic.mpijob.clouds.machine_types import MachineType

_MEBIBYTE: Final = 1024**2
_GIBIBYTE: Final = 1024**3
_EVICTION: Final = 100 * _MEBIBYTE
_FEWEST_PODS_EKS: Final = 29
"""Pods that the smallest GPU instance types hold without prefix delegation."""
_FEWEST_PODS_AKS: Final = 30
"""Azure CNI's default; others are 110 and 250."""

_Steps = Sequence[tuple[float, Decimal]]
"""(upper bound, part of what lies between the bound before and this one)."""

_FINE_STEPS: Final[_Steps] = (
    (1, Decimal("0.06")),
    (2, Decimal("0.01")),
    (4, Decimal("0.005")),
    (inf, Decimal("0.0025")),
)
_AKS_STEPS: Final[_Steps] = ((1, Decimal("0.06")), (2, Decimal("0.04")), (4, Decimal("0.02")), (inf, Decimal("0.01")))
_CPU_STEPS: Final = {"eks": _FINE_STEPS, "gke": _FINE_STEPS, "aks": _AKS_STEPS}
_GKE_MEMORY_STEPS: Final[_Steps] = (
    (4, Decimal("0.25")),
    (8, Decimal("0.20")),
    (16, Decimal("0.10")),
    (128, Decimal("0.06")),
    (inf, Decimal("0.02")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocatable:
    """What all pods of a node may ask for together."""

    cpus: Decimal
    memory_bytes: int


def allocatable(cloud: str, machine: MachineType) -> Allocatable:
    """The most that pods may get of a machine of `cloud` (`eks`, `gke` or `aks`)."""
    memory = machine.memory_gib * _GIBIBYTE
    match cloud:
        case "eks":
            reserved = (255 + 11 * _FEWEST_PODS_EKS) * _MEBIBYTE
        case "gke":
            reserved = int(_in_steps(machine.memory_gib, _GKE_MEMORY_STEPS) * _GIBIBYTE)
        case _:
            reserved = min((20 * _FEWEST_PODS_AKS + 50) * 10**6, memory // 4)
    cpus = machine.cpus - _in_steps(machine.cpus, _CPU_STEPS[cloud])
    return Allocatable(cpus=cpus, memory_bytes=memory - reserved - _EVICTION)


def _in_steps(amount: int, steps: _Steps) -> Decimal:
    bounds = [0.0, *(upper for upper, _ in steps)]
    parts = zip(pairwise(bounds), (part for _, part in steps), strict=True)
    return sum((Decimal(max(0, min(amount, upper) - lower)) * part for (lower, upper), part in parts), Decimal(0))
