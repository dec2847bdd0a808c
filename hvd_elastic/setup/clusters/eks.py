"""An EKS cluster, as eksctl makes it (eksctl.io/v1alpha5, github.com/eksctl-io/eksctl at 99984adb).

eksctl installs NVIDIA's device plugin for GPU nodes, and that of EFA, by itself. It gives a managed node group's labels
and taints to the Cluster Autoscaler as tags (`propagateASGTags`), which so knows a group that has no node.
"""

import json
from typing import Any

from hvd_elastic.mpijob.clouds.accelerators import NVIDIA
from hvd_elastic.mpijob.clouds.gpu_types import EKS_ACCELERATORS
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.setup.clusters.cluster_plan import ClusterPlan, WorkerPool
from hvd_elastic.setup.clusters.step import Step

_GPU_TAINT = {"key": NVIDIA.resource, "value": "present", "effect": "NoSchedule"}
_TERMINATION_HANDLER = "oci://public.ecr.aws/aws-ec2/helm/aws-node-termination-handler"


def cluster_config(plan: ClusterPlan) -> dict[str, Any]:
    """The ClusterConfig: launchers on demand; workers in one group for each machine, capacity and zone.

    One zone a group, because the Cluster Autoscaler cannot choose the zone of a group that spans several, and all pods
    of a job are in one zone.
    """
    groups = [_launchers(plan)]
    groups += [_workers(plan, pool, zone) for pool in plan.pools() for zone in plan.zones]
    return {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": plan.name, "region": plan.region, "version": plan.version},
        "availabilityZones": list(plan.zones),
        "iam": {
            "withOIDC": True,
            "podIdentityAssociations": [
                {
                    "namespace": "kube-system",
                    "serviceAccountName": "cluster-autoscaler",
                    "wellKnownPolicies": {"autoScaler": True},
                }
            ],
        },
        "addons": _addons(),
        "managedNodeGroups": groups,
    }


def _addons() -> list[dict[str, Any]]:
    """The network plugin with NetworkPolicies enforced, without which any pod could run code in a job; and storage."""
    fsx = {
        "namespace": "kube-system",
        "serviceAccountName": "fsx-csi-controller-sa",
        "permissionPolicyARNs": ["arn:aws:iam::aws:policy/AmazonFSxFullAccess"],
    }
    return [
        {"name": "vpc-cni", "configurationValues": json.dumps({"enableNetworkPolicy": "true"})},
        {"name": "coredns"},
        {"name": "kube-proxy"},
        {"name": "metrics-server"},
        {"name": "eks-pod-identity-agent"},
        {"name": "aws-efs-csi-driver", "useDefaultPodIdentityAssociations": True},
        {"name": "aws-fsx-csi-driver", "podIdentityAssociations": [fsx]},
    ]


def _launchers(plan: ClusterPlan) -> dict[str, Any]:
    return {
        "name": "launchers",
        "amiFamily": "AmazonLinux2023",
        "instanceTypes": [plan.launchers],
        "minSize": 1,
        "desiredCapacity": 1,
        "maxSize": plan.max_launcher_nodes,
        "propagateASGTags": True,
    }


def _workers(plan: ClusterPlan, pool: WorkerPool, zone: str) -> dict[str, Any]:
    """Private networking, because a machine with several network cards cannot have a public address."""
    group: dict[str, Any] = {
        "name": f"{pool.name}-{zone}",
        "amiFamily": "AmazonLinux2023",
        "instanceTypes": [pool.machine.name],
        "availabilityZones": [zone],
        "spot": pool.spot,
        "minSize": 0,
        "desiredCapacity": 0,
        "maxSize": plan.max_nodes,
        "privateNetworking": True,
        "labels": {"k8s.amazonaws.com/accelerator": EKS_ACCELERATORS[pool.gpu]},
        "taints": [dict(_GPU_TAINT)],
        "propagateASGTags": True,
    }
    return group | ({"efaEnabled": True} if pool.machine.efa else {})


def creation(plan: ClusterPlan) -> list[Step]:
    """The cluster with its node groups, the Cluster Autoscaler, and the handler of spot notices."""
    config = dump([cluster_config(plan)])
    autoscaler = {"autoDiscovery.clusterName": plan.name, "awsRegion": plan.region}
    autoscaler |= {"rbac.serviceAccount.name": "cluster-autoscaler"}
    settings = [word for key, value in autoscaler.items() for word in ("--set", f"{key}={value}")]
    chart = ("cluster-autoscaler", "--repo", "https://kubernetes.github.io/autoscaler", "--namespace", "kube-system")
    handler = {
        "enableSpotInterruptionDraining": True,
        "enableRebalanceMonitoring": True,
        "taintNode": True,
        "nodeSelector": {"eks.amazonaws.com/capacityType": "SPOT"},
        "tolerations": [{"operator": "Exists"}],
    }
    return [
        Step(purpose="cluster and node groups", argv=("eksctl", "create", "cluster", "-f", "-"), stdin=config),
        Step(
            purpose="the Cluster Autoscaler: nodes from none, and back to none",
            argv=("helm", "upgrade", "--install", "cluster-autoscaler", *chart, *settings),
        ),
        Step(
            purpose="spot notices become taints, which discovery reads: the worker leaves before the kill",
            argv=(
                *("helm", "upgrade", "--install", "aws-node-termination-handler", _TERMINATION_HANDLER),
                *("--namespace", "kube-system", "--values", "-"),
            ),
            stdin=dump([handler]),
        ),
    ]


def credentials(plan: ClusterPlan) -> Step:
    """Points kubectl at the cluster."""
    argv = ("aws", "eks", "update-kubeconfig", "--name", plan.name, "--region", plan.region)
    return Step(purpose="kubectl's credentials", argv=argv)


def deletion(plan: ClusterPlan) -> list[Step]:
    """The cluster with its node groups. Drains are skipped: a disruption budget would hold them up for ever."""
    argv = ("eksctl", "delete", "cluster", "--name", plan.name, "--region", plan.region)
    flags = ("--disable-nodegroup-eviction", "--wait")
    return [Step(purpose="the cluster and its node groups", argv=(*argv, *flags))]
