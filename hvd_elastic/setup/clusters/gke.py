"""A GKE cluster, as gcloud makes it (checked with Google Cloud SDK 528).

GKE taints GPU nodes (`nvidia.com/gpu=present:NoSchedule`) and labels their GPU and spot capacity by itself, installs
driver and device plugin, and scales pools from none. Its kubelet ends pods of a reclaimed machine itself.
"""

from hvd_elastic.mpijob.clouds.gpu_types import GKE_ACCELERATORS
from hvd_elastic.setup.clusters.cluster_plan import ClusterPlan, WorkerPool
from hvd_elastic.setup.clusters.step import Step

_CLUSTERS = ("gcloud", "container", "clusters")


def creation(plan: ClusterPlan) -> list[Step]:
    """The cluster with nodes for launchers, and the pools of workers."""
    create = (
        *(*_CLUSTERS, "create", plan.name, *_where(plan), f"--cluster-version={plan.version}"),
        *("--release-channel=regular", f"--node-locations={','.join(plan.zones)}", f"--machine-type={plan.launchers}"),
        *("--num-nodes=1", "--enable-autoscaling", "--total-min-nodes=1"),
        *(f"--total-max-nodes={plan.max_launcher_nodes}", "--enable-ip-alias", "--enable-dataplane-v2"),
        f"--workload-pool={plan.account}.svc.id.goog",
        "--addons=HorizontalPodAutoscaling,HttpLoadBalancing,GcePersistentDiskCsiDriver,GcpFilestoreCsiDriver",
    )
    purpose = "cluster and nodes for launchers; Dataplane V2 enforces NetworkPolicies"
    return [Step(purpose=purpose, argv=create), *(_pool(plan, pool) for pool in plan.pools())]


def _pool(plan: ClusterPlan, pool: WorkerPool) -> Step:
    accelerator = f"type={GKE_ACCELERATORS[pool.gpu]},count={pool.machine.gpus},gpu-driver-version=default"
    spot = ("--spot", "--node-taints=cloud.google.com/gke-spot=true:NoSchedule") if pool.spot else ()
    argv = (
        *("gcloud", "container", "node-pools", "create", pool.name, f"--cluster={plan.name}", *_where(plan)),
        *(f"--machine-type={pool.machine.name}", f"--accelerator={accelerator}", *spot),
        *("--num-nodes=0", "--enable-autoscaling", "--total-min-nodes=0", f"--total-max-nodes={plan.max_nodes}"),
        *("--location-policy=ANY", f"--node-locations={','.join(plan.zones)}", "--workload-metadata=GKE_METADATA"),
    )
    return Step(purpose=f"workers, {'spot' if pool.spot else 'on demand'}", argv=argv)


def credentials(plan: ClusterPlan) -> Step:
    """Points kubectl at the cluster."""
    return Step(purpose="kubectl's credentials", argv=(*_CLUSTERS, "get-credentials", plan.name, *_where(plan)))


def deletion(plan: ClusterPlan) -> list[Step]:
    """The cluster with its pools."""
    argv = (*_CLUSTERS, "delete", plan.name, *_where(plan), "--quiet")
    return [Step(purpose="the cluster and its node pools", argv=argv)]


def _where(plan: ClusterPlan) -> tuple[str, str]:
    return f"--project={plan.account}", f"--location={plan.region}"
