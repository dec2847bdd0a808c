"""What a worker's accelerators are: the resource that asks for them, their nodes' taints and labels, and their sharing.

A description names the resource (`workers.gpu_resource`), and everything else about the accelerator follows from that
name. The names are those of the vendors' device plugins: NVIDIA/k8s-device-plugin (README.md, "Supporting MIG" and
"Shared Access to GPUs"), ROCm/k8s-device-plugin (docs/user-guide/configuration.md),
intel/intel-device-plugins-for-kubernetes (cmd/gpu_plugin/README.md), and Intel's pages on Gaudi.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE


class Portion(StrEnum):
    """What one of a resource is, and so how the processes of a pod choose theirs."""

    DEVICE = "device"
    """A device, or a part that is one of its own. A process takes the one that its local rank numbers."""
    INSTANCE = "MIG instance"
    """A part of an NVIDIA GPU. CUDA shows a process a single one, whatever the pod holds (NVIDIA's MIG user guide,
    "CUDA Device Enumeration"), so a pod can use one only."""
    TURN = "share of a GPU"
    """A turn on a GPU that others use too. Two of a pod may be turns on the same GPU, which the plugin can be told to
    refuse (`failRequestsGreaterThanOne`), and NCCL refuses two processes on one GPU."""


ONE_ONLY: Final[Mapping[Portion, str]] = {
    Portion.INSTANCE: "CUDA shows a process a single one",
    Portion.TURN: "a second may be a turn on the same GPU",
}
"""Portions of which a pod can use one only, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One kind of accelerator, as pods ask for it."""

    resource: str
    """The extended resource: `nvidia.com/gpu`."""
    whole: str
    """The resource of whole devices of this vendor. The same, unless `resource` is of parts."""
    portion: Portion = Portion.DEVICE
    product_label: str = ""
    """The node label in which the vendor's labeller writes the model; empty: none is known."""

    @property
    def taints(self) -> tuple[str, ...]:
        """Keys of the taints that keep other pods off its nodes.

        By convention the resource's name (the admission plugin ExtendedResourceToleration of Kubernetes); clouds taint
        nodes with parts of a GPU by the name of the whole, too.
        """
        return tuple(dict.fromkeys((self.whole, self.resource)))

    @property
    def is_nvidia(self) -> bool:
        """Whether it is an NVIDIA GPU, or a part of one. The values of `gpu_type` are such GPUs."""
        return self.whole == GPU_RESOURCE

    @property
    def is_whole(self) -> bool:
        """Whether one of the resource is one of the devices that a machine has so many of."""
        return self.resource == self.whole and self.portion is Portion.DEVICE


NVIDIA: Final = Accelerator(resource=GPU_RESOURCE, whole=GPU_RESOURCE, product_label="nvidia.com/gpu.product")
AMD: Final = Accelerator(resource="amd.com/gpu", whole="amd.com/gpu", product_label="amd.com/gpu.product-name")
GAUDI: Final = Accelerator(resource="habana.ai/gaudi", whole="habana.ai/gaudi")
WHOLE: Final = (
    NVIDIA,
    AMD,
    GAUDI,
    *(
        Accelerator(resource=name, whole=name, product_label="gpu.intel.com/product")
        for name in ("gpu.intel.com/i915", "gpu.intel.com/xe")
    ),
)
"""Accelerators that are known by the names of their resources. Any other resource may be named, too."""

_VENDORS: Final = {"nvidia.com": NVIDIA, "amd.com": AMD}
"""Vendors whose plugins give parts of a device, and devices that an administrator renames, names of their own."""

_SHARED: Final = ".shared"
"""What NVIDIA's plugin adds to the name of a resource that pods share in turns (`renameByDefault`)."""
_INSTANCE: Final = re.compile(r"nvidia\.com/mig-[0-9a-z.+-]+")
"""`migStrategy: mixed`: `nvidia.com/mig-1g.10gb`."""
_AMD_PART: Final = re.compile(r"amd\.com/[a-z]+_nps[0-9]+")
"""`resource_naming_strategy: mixed`: `amd.com/cpx_nps4`. Each part is a device of its own to a process."""
_BY_LABEL: Final = (
    (NVIDIA.product_label, "-MIG-", Portion.INSTANCE),
    ("cloud.google.com/gke-gpu-partition-size", "", Portion.INSTANCE),
    (NVIDIA.product_label, "-SHARED", Portion.TURN),
    ("cloud.google.com/gke-gpu-sharing-strategy", "", Portion.TURN),
)
"""Labels, and what is in their values, of nodes on which `nvidia.com/gpu` itself is a part: `migStrategy: single`,
time-slicing without a new name, and both on GKE."""


def is_accelerator(resource: str) -> bool:
    """Whether a vendor's device plugin calls an accelerator so, or a part of one."""
    name = resource.removesuffix(_SHARED)
    return any(one.resource == name for one in WHOLE) or bool(_INSTANCE.fullmatch(name) or _AMD_PART.fullmatch(name))


def find_accelerator(resource: str, node_labels: Mapping[str, str] = MappingProxyType({})) -> Accelerator:
    """The accelerator of a resource on nodes with these labels. One that is not known is taken for a device."""
    domain, _, _ = resource.partition("/")
    unknown = Accelerator(resource=resource, whole=resource)
    known = next((one for one in WHOLE if one.resource == resource), _VENDORS.get(domain, unknown))
    return replace(known, resource=resource, portion=_portion(known, resource, node_labels))


def _portion(known: Accelerator, resource: str, node_labels: Mapping[str, str]) -> Portion:
    if not known.is_nvidia:
        return Portion.DEVICE
    if _INSTANCE.match(resource):
        return Portion.INSTANCE
    if resource.endswith(_SHARED):
        return Portion.TURN
    told = (portion for label, part, portion in _BY_LABEL if part in (node_labels.get(label) or ()))
    return next(told, Portion.DEVICE)
