"""The node groups that a job's pods fit on, described so that an autoscaler can grow them from zero nodes.

An autoscaler cannot see the labels, taints and devices of a group without nodes. On EKS the Cluster Autoscaler reads
them from tags of the group (`k8s.io/cluster-autoscaler/node-template/...`). GKE knows its own labels. On AKS the pool
must have the GPU's label itself, because GPU feature discovery sets it only once a node runs.
"""

from typing import Final

from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.clouds.cloud_nodes import NODES, Provisioner, Term
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import node_placement, worker_pod
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, without_empty

_TEMPLATE: Final = "k8s.io/cluster-autoscaler/node-template"
_KNOWN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that the autoscaler knows from the machine type alone."""
_SET_BY_THE_CLOUD: Final = (
    "eks.amazonaws.com/",
    "cloud.google.com/",
    "kubernetes.azure.com/",
    "topology.kubernetes.io/",
)


def node_groups(spec: JobSpec) -> list[Manifest]:
    """One group for the launcher and one for the workers, with the labels, taints and tags that each must have."""
    provisioner = NODES[spec.cloud].provisioners[0]
    return [_launcher_group(spec), _worker_group(spec, provisioner)]


def _launcher_group(spec: JobSpec) -> Manifest:
    labels = dict(spec.launcher_node_labels)
    return without_empty(
        role=str(Role.LAUNCHER),
        capacity=str(Capacity.ON_DEMAND),
        zones=node_placement.zones(spec),
        minSize=0,
        maxSize=1,
        labels=labels,
        tags=_tags(spec, labels, taints={}, resources={}),
    )


def _worker_group(spec: JobSpec, provisioner: Provisioner) -> Manifest:
    gpu = provisioner.gpus[spec.gpu_type] if spec.gpu_type else ()
    labels = {**_own_labels(gpu), **spec.node_labels}
    taints = {spec.accelerator.whole: "NoSchedule"} if spec.workers.gpus else {}
    limits: dict[str, str] = worker_pod.resources(spec)["limits"]
    devices = {name: amount for name, amount in limits.items() if name not in _KNOWN_RESOURCES}
    return without_empty(
        role=str(Role.WORKER),
        capacity=str(spec.capacity),
        instanceType=spec.instance_type,
        zones=node_placement.zones(spec),
        minSize=0,
        maxSize=spec.workers.max,
        labels=labels,
        taints=[{"key": key, "effect": effect} for key, effect in taints.items()],
        resources=devices,
        tags=_tags(spec, labels, taints, devices),
    )


def _own_labels(term: Term) -> dict[str, str]:
    """The labels of a term that the creator of the group must set, because the cloud does not."""
    return {
        requirement["key"]: requirement["values"][0]
        for requirement in term
        if not requirement["key"].startswith(_SET_BY_THE_CLOUD)
    }


def _tags(
    spec: JobSpec, labels: dict[str, str], taints: dict[str, str], resources: dict[str, str]
) -> dict[str, str] | None:
    if spec.cloud is not Cloud.EKS:
        return None
    return {
        "k8s.io/cluster-autoscaler/enabled": "true",
        **{f"{_TEMPLATE}/label/{key}": value for key, value in labels.items()},
        **{f"{_TEMPLATE}/taint/{key}": f":{effect}" for key, effect in taints.items()},
        **{f"{_TEMPLATE}/resources/{name}": amount for name, amount in resources.items()},
    }
