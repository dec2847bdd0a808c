"""Checks of the nodes: GPUs, places for launchers, addresses, and who enforces NetworkPolicies."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

from hvd_elastic.client.connection.server_version import OLDEST_MINOR, minor
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, error, ok, warning
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.discovery.kube.node_taints import taints_of
from hvd_elastic.discovery.rules.cluster_views import gpu_resource_of
from hvd_elastic.mpijob.clouds.accelerators import WHOLE, find_accelerator, is_accelerator
from hvd_elastic.mpijob.clouds.cloud_nodes import NODES
from hvd_elastic.system import quantity
from hvd_elastic.system.plain_words import count_words

_SPOT_LABELS: Final = [
    (requirement["key"], requirement["values"])
    for nodes in NODES.values()
    for provisioner in nodes.provisioners
    for requirement in provisioner.spot
]
_SPOT_TAINTS: Final = {toleration["key"] for nodes in NODES.values() for toleration in nodes.spot_tolerations}
"""Keys of the taints of spot nodes that generated workers tolerate. Launchers tolerate none."""
_ENFORCERS: Final = {
    "calico-node": "Calico",
    "cilium": "Cilium",
    "antrea-agent": "Antrea",
    "kube-router": "kube-router",
    "weave-net": "Weave Net",
    "ovnkube-node": "OVN-Kubernetes",
    "anetd": "GKE Dataplane V2",
    "azure-npm": "Azure NPM",
    "canal": "Canal",
    "kube-ovn-cni": "Kube-OVN",
    "kindnet": "kindnet",
}
"""DaemonSets that enforce NetworkPolicies, by name. Not flannel, and the VPC CNI of AWS only with its agent."""
_AWS_CNI: Final = "aws-node"
_AWS_AGENTS: Final = ("aws-eks-nodeagent", "aws-network-policy-agent")

_GPU_DRIVER: Final = re.compile(r"(gpu|gaudi)\.")
"""Names of drivers (`gpu.nvidia.com`, `gpu.amd.com`, `gpu.intel.com`, `gaudi.intel.com`); others hand out networks."""

Node = Mapping[str, Any]


def _name(node: Node) -> str:
    return str(node["metadata"]["name"])


def _is_ready(node: Node) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("unschedulable")


def is_spot(node: Node) -> bool:
    """Whether the cloud may take it back at any time, by its labels."""
    labels = node["metadata"].get("labels", {})
    return any(labels.get(key) in values for key, values in _SPOT_LABELS)


def _gpus(node: Node, of: str, named: Set[str]) -> Counter[str]:
    """By resource. `named`: those that jobs call their GPUs, beside the ones that are known."""
    amounts = node["status"].get(of, {})
    return +Counter({name: quantity.count(amounts[name]) for name in amounts if name in named or is_accelerator(name)})


def _named(facts: ClusterFacts) -> set[str]:
    """What the jobs that can be seen call their GPUs."""

    def resource_of(job: Mapping[str, Any]) -> str | None:
        name = gpu_resource_of(job)
        return name if "/" in name else None

    return set(ObjectReading("MPIJob").each(map(dict, facts.mpijobs), resource_of))


def _taints(node: Node) -> set[str]:
    """Keys of the taints that keep pods off."""
    return {taint.key for taint in taints_of(node)}


def _untolerated(node: Node, gpus: Iterable[str]) -> set[str]:
    """Keys of the taints that keep workers off that ask for GPUs of the node."""
    return _taints(node) - _SPOT_TAINTS - {key for resource in gpus for key in find_accelerator(resource).taints}


def _some(nodes: list[Node]) -> str:
    shown = ", ".join(_name(node) for node in nodes[:3])
    return f"{shown} and {len(nodes) - 3} more" if len(nodes) > 3 else shown


@check("gpus", Fact.NODES)
def gpus(facts: ClusterFacts) -> Iterator[Verdict]:
    """Workers ask for GPUs, which a device plugin offers."""
    named = _named(facts)
    found = [(node, gpus) for node in facts.nodes if (gpus := _gpus(node, "allocatable", named))]
    offering = [node for node, _ in found]
    lost = [node for node in facts.nodes if _gpus(node, "capacity", named) - _gpus(node, "allocatable", named)]
    if not offering and (classes := _classes_of_gpus(facts)):
        yield ok(f"no node offers any by itself; ResourceClaims hand them out ({', '.join(sorted(classes))})")
    elif not offering:
        yield error(
            f"none of {len(facts.nodes)} nodes offers {', '.join(one.resource for one in WHOLE)} or a part of one",
            "install the device plugin of the GPUs; of NVIDIA's: https://github.com/NVIDIA/k8s-device-plugin",
        )
    if lost:
        yield warning(
            f"GPUs that cannot be used (unhealthy, or the device plugin is gone): {_some(lost)}",
            f"kubectl describe node {_name(lost[0])}; look at the device plugin's log there",
        )
    if not offering:
        return
    ready = [(node, gpus) for node, gpus in found if _is_ready(node)]
    tainted = [(node, keys) for node, gpus in ready if (keys := _untolerated(node, gpus))]
    usable = [(node, gpus) for node, gpus in ready if not _untolerated(node, gpus)]
    if tainted:
        untolerated = sorted(set().union(*(keys for _, keys in tainted)))
        yield warning(
            f"workers do not tolerate {', '.join(untolerated)} of {_some([node for node, _ in tainted])}",
            "remove the taint, or add the toleration in the job",
        )
    if usable:
        amounts = sum((gpus for _, gpus in usable), Counter[str]())
        words = ", ".join(f"{amount} {resource}" for resource, amount in sorted(amounts.items()))
        yield ok(f"{words} on {count_words(len(usable), 'node')}: {_some([node for node, _ in usable])}")
    elif not tainted:
        yield error(
            f"no node with GPUs is Ready and schedulable: {_some(offering)}",
            f"kubectl describe node {_name(offering[0])}",
        )


@check("claimed-devices", Fact.CLAIMED_DEVICES)
def claimed_devices(facts: ClusterFacts) -> Iterator[Verdict]:
    """GPUs that ResourceClaims hand out are in ResourceSlices, and not in what a node says that it offers.

    Nobody is preempted for them: where claims cannot be allocated, kube-scheduler 1.37.2 calls a pod unresolvable
    (`plugins/dynamicresources/dynamicresources.go`, `statusUnschedulable`), which was also seen.
    """
    found = {driver: count for driver, count in _devices(facts).items() if _GPU_DRIVER.match(driver)}
    if not found:
        yield ok("no driver hands out GPUs by ResourceClaims")
        return
    offered = ", ".join(f"{driver} {count_words(count, 'device')}" for driver, count in sorted(found.items()))
    if classes := _classes_of_gpus(facts):
        names = ", ".join(f"{resource} (DeviceClass {name})" for name, resource in sorted(classes.items()))
        given = f"jobs get them as {names}"
        instead = "give training and inference GPUs of a device plugin"
    else:
        given = "no DeviceClass gives them the name of a resource, and `workers.gpus` gets none of them"
        instead = "install the device plugin of the GPUs"
    yield warning(
        f"ResourceSlices have of {offered}: {given}. The scheduler takes no such GPU from a lower class for inference, "
        "and `autoscale` counts none",
        f"{instead}, which the scheduler takes back worker by worker",
    )


def _devices(facts: ClusterFacts) -> Counter[str]:
    """Devices by driver. A pool is written anew under a higher generation, and older slices count no more."""
    newest: dict[tuple[str, str], int] = {}
    slices = [one["spec"] for one in facts.resource_slices]
    for one in slices:
        pool = (str(one["driver"]), str(one["pool"]["name"]))
        newest[pool] = max(int(one["pool"].get("generation") or 0), newest.get(pool, 0))
    return Counter(
        str(one["driver"])
        for one in slices
        if int(one["pool"].get("generation") or 0) == newest[str(one["driver"]), str(one["pool"]["name"])]
        for _ in one.get("devices") or ()
    )


def _classes_of_gpus(facts: ClusterFacts) -> dict[str, str]:
    """DeviceClasses that hand out devices to pods which ask for GPUs, and how pods ask."""
    named = _named(facts)
    asked = {
        one["metadata"]["name"]: str(one["spec"].get("extendedResourceName") or "") for one in facts.device_classes
    }
    return {name: resource for name, resource in asked.items() if resource in named or is_accelerator(resource)}


@check("launcher-nodes", Fact.NODES)
def launcher_nodes(facts: ClusterFacts) -> Iterator[Verdict]:
    """A launcher that is lost with a spot node costs a restart of all of its workers."""
    ready = [node for node in facts.nodes if _is_ready(node)]
    steady = [node for node in ready if not is_spot(node) and not _taints(node)]
    if not ready:
        yield error("no node is Ready and schedulable", "kubectl get nodes")
    elif not steady:
        yield warning(
            "every node that would take a launcher is a spot node: each reclaimed one may end a launcher",
            "add an on-demand node without GPUs: a launcher needs little of it",
        )
    else:
        yield ok(f"on-demand: {_some(steady)}")


@check("kubelets", Fact.NODES)
def kubelets(facts: ClusterFacts) -> Iterator[Verdict]:
    """A kubelet that knows no native sidecars waits for the sidecar's end before it starts the launcher."""
    old = [node for node in facts.nodes if minor(node["status"]["nodeInfo"]["kubeletVersion"]) < OLDEST_MINOR]
    if old:
        yield error(
            f"no native sidecars on {_some(old)} ({old[0]['status']['nodeInfo']['kubeletVersion']})",
            f"upgrade these nodes to 1.{OLDEST_MINOR} or later",
        )
    else:
        yield ok(f"{count_words(len(facts.nodes), 'node')}, with native sidecars")


@check("addresses", Fact.NODES)
def addresses(facts: ClusterFacts) -> Iterator[Verdict]:
    """Of Horovod's builds ours alone knows IPv6, and of a job's policies those alone that are told of it."""
    ranges = [str(text) for node in facts.nodes for text in node["spec"].get("podCIDRs", ())]
    if ranges and all(":" in text for text in ranges):
        yield warning(
            f"pods have IPv6 addresses only ({ranges[0]})",
            "write `network: {ipv6: true}`, and use an image whose Horovod `hvd-elastic install-horovod` has built",
        )
    else:
        yield ok("pods have IPv4 addresses" if ranges else "nodes name no range of pod addresses")


@check("network-policies", Fact.DAEMON_SETS)
def network_policies(facts: ClusterFacts) -> Iterator[Verdict]:
    """A job's ports believe whoever reaches them: only a NetworkPolicy keeps other pods away."""
    enforcing = sorted({name for one in facts.daemon_sets if (name := _enforcer(one))})
    if enforcing:
        yield ok(f"{', '.join(enforcing)} enforces them")
    else:
        yield warning(
            "no network plugin is recognized that enforces NetworkPolicies: any pod may reach the ports of a job",
            "install one that does, for example Calico or Cilium; with AWS's VPC CNI set enableNetworkPolicy. "
            "Until then write `launcher: launch`: under horovodrun any pod may take a worker's place",
        )


def _enforcer(daemon_set: Mapping[str, Any]) -> str | None:
    name = str(daemon_set["metadata"]["name"])
    containers = {str(one["name"]) for one in daemon_set["spec"]["template"]["spec"]["containers"]}
    if name == _AWS_CNI:
        return "AWS VPC CNI" if containers & set(_AWS_AGENTS) else None
    return _ENFORCERS.get(name)
