"""An AKS cluster, as az makes it (flags: Azure/azure-cli at 0088c878, command_modules/acs/_params.py).

AKS labels and taints spot nodes by itself and installs the GPU driver, but no device plugin and no label that names the
GPU. The pools carry that label, so that the autoscaler knows a pool that has no node. CSI drivers of Azure Files and
disks are there by default.
"""

from hvd_elastic.mpijob.clouds.accelerators import NVIDIA
from hvd_elastic.mpijob.clouds.gpu_types import PRODUCTS, GpuType
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.setup.clusters.cluster_plan import ClusterPlan, WorkerPool
from hvd_elastic.setup.clusters.step import Step

_PCIE = {GpuType.A100_80GB: "NVIDIA-A100-80GB-PCIe", GpuType.H100: "NVIDIA-H100-NVL"}
"""What NC sizes have; ND sizes have the first of PRODUCTS."""
_PLUGIN = "nvidia-device-plugin"


def creation(plan: ClusterPlan) -> list[Step]:
    """The resource group, the cluster with nodes for launchers, and the pools of workers."""
    group = ("az", "group", "create", "--name", _group(plan), "--location", plan.region)
    create = (
        *("az", "aks", "create", *_which(plan), "--location", plan.region, "--kubernetes-version", plan.version),
        *("--nodepool-name", "launchers", "--node-vm-size", plan.launchers, "--node-count", "1"),
        *("--enable-cluster-autoscaler", "--min-count", "1", "--max-count", str(plan.max_launcher_nodes)),
        *("--network-plugin", "azure", "--network-plugin-mode", "overlay", "--network-dataplane", "cilium"),
        *("--network-policy", "cilium", "--enable-oidc-issuer", "--enable-workload-identity", "--no-ssh-key"),
    )
    return [
        Step(purpose="the resource group", argv=group),
        Step(purpose="cluster and nodes for launchers; Cilium enforces NetworkPolicies", argv=create),
        *(_pool(plan, pool) for pool in plan.pools()),
        credentials(plan),
        _device_plugin(),
    ]


def _pool(plan: ClusterPlan, pool: WorkerPool) -> Step:
    spot = ("--priority", "Spot", "--eviction-policy", "Delete", "--spot-max-price", "-1") if pool.spot else ()
    labels = (f"{NVIDIA.product_label}={product(pool)}", "nvidia.com/gpu.present=true")
    argv = (
        *("az", "aks", "nodepool", "add", "--resource-group", _group(plan), "--cluster-name", plan.name),
        *("--name", f"{'spot' if pool.spot else 'od'}{pool.number}", "--node-vm-size", pool.machine.name, *spot),
        *("--node-count", "0", "--enable-cluster-autoscaler", "--min-count", "0", "--max-count", str(plan.max_nodes)),
        *("--node-taints", f"{NVIDIA.resource}=present:NoSchedule", "--labels", *labels),
        *(("--zones", *plan.zones) if plan.zones else ()),
    )
    return Step(purpose=f"workers, {'spot' if pool.spot else 'on demand'}", argv=argv)


def product(pool: WorkerPool) -> str:
    """The product label of a pool's GPUs."""
    narrow = pool.machine.name.startswith("Standard_NC")
    return _PCIE.get(pool.gpu, PRODUCTS[pool.gpu][0]) if narrow else PRODUCTS[pool.gpu][0]


def _device_plugin() -> Step:
    values = {"tolerations": [{"operator": "Exists"}]}
    argv = (
        *("helm", "upgrade", "--install", _PLUGIN, _PLUGIN, "--repo", "https://nvidia.github.io/k8s-device-plugin"),
        *("--namespace", _PLUGIN, "--create-namespace", "--values", "-"),
    )
    return Step(purpose=f"NVIDIA's device plugin: nodes have {NVIDIA.resource}", argv=argv, stdin=dump([values]))


def credentials(plan: ClusterPlan) -> Step:
    """Points kubectl at the cluster."""
    return Step(purpose="kubectl's credentials", argv=("az", "aks", "get-credentials", *_which(plan)))


def deletion(plan: ClusterPlan) -> list[Step]:
    """The cluster with its pools. The resource group stays: others may have put something into it."""
    argv = ("az", "aks", "delete", *_which(plan), "--yes")
    return [Step(purpose="the cluster and its node pools", argv=argv)]


def _group(plan: ClusterPlan) -> str:
    return plan.account or ""


def _which(plan: ClusterPlan) -> tuple[str, ...]:
    return "--resource-group", _group(plan), "--name", plan.name
