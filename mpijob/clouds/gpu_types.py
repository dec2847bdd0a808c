"""GPU types, and the names that each cloud gives them in node labels."""

from enum import StrEnum
from typing import Final


class GpuType(StrEnum):
    """GPU types as a job description names them."""

    K80 = "k80"
    P100 = "p100"
    V100 = "v100"
    T4 = "t4"
    A10 = "a10"
    A10G = "a10g"
    L4 = "l4"
    L40S = "l40s"
    A100 = "a100"
    A100_80GB = "a100-80gb"
    H100 = "h100"
    H200 = "h200"
    B200 = "b200"


GKE_ACCELERATORS: Final = {
    GpuType.P100: "nvidia-tesla-p100",
    GpuType.V100: "nvidia-tesla-v100",
    GpuType.T4: "nvidia-tesla-t4",
    GpuType.L4: "nvidia-l4",
    GpuType.A100: "nvidia-tesla-a100",
    GpuType.A100_80GB: "nvidia-a100-80gb",
    GpuType.H100: "nvidia-h100-80gb",
    GpuType.H200: "nvidia-h200-141gb",
    GpuType.B200: "nvidia-b200",
}
"""Values of `cloud.google.com/gke-accelerator` (cloud.google.com/kubernetes-engine/docs/how-to/gpus)."""

KARPENTER_GPUS: Final = {
    GpuType.K80: "k80",
    GpuType.V100: "v100",
    GpuType.T4: "t4",
    GpuType.A10G: "a10g",
    GpuType.L4: "l4",
    GpuType.L40S: "l40s",
    GpuType.A100: "a100",
    GpuType.A100_80GB: "a100",
    GpuType.H100: "h100",
    GpuType.H200: "h200",
    GpuType.B200: "b200",
}
"""Values of `karpenter.k8s.aws/instance-gpu-name`; `instance-gpu-memory` (MiB) tells sizes of memory apart."""

KARPENTER_GPU_MEMORY: Final = {GpuType.A100: "40960", GpuType.A100_80GB: "81920"}
"""Values of `karpenter.k8s.aws/instance-gpu-memory`, for GPUs whose name alone is ambiguous."""

EKS_ACCELERATORS: Final = {
    gpu: f"nvidia-tesla-{gpu}" if gpu in {GpuType.K80, GpuType.V100, GpuType.T4} else f"nvidia-{gpu}"
    for gpu in KARPENTER_GPUS
}
"""Values of `k8s.amazonaws.com/accelerator`. A node group without Karpenter must be given this label."""

PRODUCTS: Final = {
    GpuType.K80: ("Tesla-K80",),
    GpuType.P100: ("Tesla-P100-PCIE-12GB", "Tesla-P100-PCIE-16GB", "Tesla-P100-SXM2-16GB"),
    GpuType.V100: (
        "Tesla-V100-PCIE-16GB",
        "Tesla-V100-PCIE-32GB",
        "Tesla-V100-SXM2-16GB",
        "Tesla-V100-SXM2-32GB",
        "Tesla-V100-SXM3-32GB",
    ),
    GpuType.T4: ("Tesla-T4",),
    GpuType.A10: ("NVIDIA-A10",),
    GpuType.A10G: ("NVIDIA-A10G",),
    GpuType.L4: ("NVIDIA-L4",),
    GpuType.L40S: ("NVIDIA-L40S",),
    GpuType.A100: ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "A100-SXM4-40GB", "A100-PCIE-40GB"),
    GpuType.A100_80GB: ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "A100-SXM4-80GB"),
    GpuType.H100: ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"),
    GpuType.H200: ("NVIDIA-H200", "NVIDIA-H200-NVL"),
    GpuType.B200: ("NVIDIA-B200",),
}
"""Values of `nvidia.com/gpu.product`, which NVIDIA's GPU feature discovery sets on any cluster, AKS among them."""

AKS_GPUS: Final = frozenset(
    {GpuType.V100, GpuType.T4, GpuType.A10, GpuType.A100, GpuType.A100_80GB, GpuType.H100, GpuType.H200}
)
"""GPUs for which AKS has node sizes. AKS sets no GPU label of its own, so PRODUCTS are used."""
