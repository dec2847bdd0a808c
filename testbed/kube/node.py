"""A node: containerd and a kubelet in a network namespace of their own, with labels, a taint and GPUs as in a cloud."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.kube import network, store, waiting
from testbed.kube.certificates import Authority
from testbed.kube.controlplane import CGROUP, ControlPlane
from testbed.kube.daemons import Daemon, hierarchies_of_tasks
from testbed.kube.host import CNI_PLUGINS
from testbed.kube.kubectl import Kubectl
from testbed.kube.ledger import Ledger
from testbed.kube.network import NodeLink

_COMMON: Final = {
    "topology.kubernetes.io/region": "test-1",
    "topology.kubernetes.io/zone": "test-1a",
    "node.kubernetes.io/instance-type": "test.gpu",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
    "karpenter.k8s.aws/instance-gpu-name": "a100",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What a cloud would say of a node."""

    name: str
    gpus: int
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()


ON_DEMAND: Final = Node(
    name="on-demand",
    gpus=2,
    labels={
        **_COMMON,
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "karpenter.sh/capacity-type": "on-demand",
    },
)
SPOT: Final = Node(
    name="spot",
    gpus=4,
    labels={
        **_COMMON,
        "eks.amazonaws.com/capacityType": "SPOT",
        "karpenter.sh/capacity-type": "spot",
        "cloud.google.com/gke-spot": "true",
        "kubernetes.azure.com/scalesetpriority": "spot",
    },
    taints=({"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"},),
)
NODES: Final = (ON_DEMAND, SPOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A node as it runs on this machine."""

    node: Node
    plane: ControlPlane
    number: int

    @property
    def folder(self) -> Path:
        """Everything of the node: containerd's store, the kubelet's root, logs of pods."""
        return self.plane.state / self.node.name

    @property
    def link(self) -> NodeLink:
        """Its cable."""
        return NodeLink(subnets=self.plane.subnets, number=self.number, node=self.node.name)

    @property
    def address(self) -> str:
        """Its own, which pods of its network have, too."""
        return self.plane.subnets.node(self.number)

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.folder / "containerd.sock"

    def make_link(self, ledger: Ledger) -> None:
        """Make its namespace and cable."""
        plane = self.plane
        network.make_node_link(ledger, self.link, nodes=len(NODES), api_port=plane.api_port, dns_port=plane.dns_port)

    def start_containerd(self, ledger: Ledger) -> None:
        """Start containerd over a copy of the image store; it answers when this returns."""
        self.folder.mkdir()
        store.copy_to(self.folder / "containerd")
        network.cni_configuration(self.folder / "cni", self.link, data=self.folder / "addresses")
        ledger.note("results", "/var/lib/cni/results", f"{self.folder}/containerd/io.containerd.grpc.v1.cri/sandboxes")
        (self.folder / "containerd.toml").write_text(self._containerd_configuration())
        daemon = self._daemon("containerd", "containerd", "--config", str(self.folder / "containerd.toml"))
        daemon.start()
        store.wait_answers(self.socket, daemon)

    def start_kubelet(self, ledger: Ledger, authority: Authority) -> None:
        """Start the kubelet; it registers the node by itself."""
        user = f"system:node:{self.node.name}"
        names = [self.node.name, self.address]
        pair = authority.issue(self.node.name, user, groups=["system:nodes"], answers_to=names)
        kubeconfig = self.plane.kubeconfig(self.node.name, pair)
        configuration = self._kubelet_configuration(pair.certificate, pair.key)
        (self.folder / "kubelet.json").write_text(json.dumps(configuration))
        ledger.note("links", "/var/log/containers", str(self.folder))
        hierarchies_of_tasks(f"{CGROUP}/{self.node.name}")
        self._daemon(
            "kubelet",
            str(self.plane.programs / "kubelet"),
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self.folder}/kubelet",
            f"--cert-dir={self.folder}/kubelet-keys",
            f"--hostname-override={self.node.name}",
            f"--node-ip={self.address}",
            # All kubelets of a machine make the socket of its device plugins at one fixed path: of two that start at
            # once, one may find it taken, and end.
            comes_back=True,
        ).start()

    def furnish(self, kubectl: Kubectl) -> None:
        """Wait until the node is registered, then give it its labels, taints and GPUs; wait until it is Ready."""
        name = self.node.name
        kubelet = Daemon.load(self.plane.state, f"{name}-kubelet")

        def registered() -> bool:
            kubelet.require_alive()
            return kubectl.find("node", name) is not None

        waiting.until(f"node {name} registers", registered, within_seconds=60, seen=kubelet.tail)
        self.set_gpus(kubectl, self.node.gpus)
        taints = [*self.node.taints]
        patch = {"metadata": {"labels": self.node.labels}, "spec": {"taints": taints}}
        kubectl.wait("node", name, condition="Ready", within_seconds=60, seen=kubelet.tail)
        kubectl.patch("node", name, patch)

    def set_gpus(self, kubectl: Kubectl, count: int, resource: str = GPU_RESOURCE) -> None:
        """Let the node offer `count` GPUs: an extended resource, which the kubelet leaves as it finds it."""
        gpus = {resource: str(count)}
        kubectl.patch("node", self.node.name, {"status": {"capacity": gpus, "allocatable": gpus}}, subresource="status")

    def _daemon(self, name: str, *argv: str, comes_back: bool = False) -> Daemon:
        return self.plane.daemon(f"{self.node.name}-{name}", *argv, netns=self.link.netns, comes_back=comes_back)

    def _containerd_configuration(self) -> str:
        # restrict_oom_score_adj, disable_apparmor: a container of ours may lack CAP_SYS_RESOURCE and AppArmor, and then
        # every sandbox fails. The mounts of network namespaces stay below the state folder, where `down` finds them.
        return f"""\
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/run"
[grpc]
 address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
 sandbox_image = "{store.PAUSE_IMAGE}"
 disable_apparmor = true
 restrict_oom_score_adj = true
 netns_mounts_under_state_dir = true
 [plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{self.folder}/cni"
 [plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
"""

    def _kubelet_configuration(self, certificate: Path, key: Path) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.plane.keys / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "address": "::" if self.plane.subnets.ipv6 else "0.0.0.0",
            "clusterDNS": [self.plane.subnets.dns_service],
            "clusterDomain": "cluster.local",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}/{self.node.name}",
            # Pods that share two cores ask for little, and would be slowed down to just that.
            "cpuCFSQuota": False,
            "failCgroupV1": False,
            "failSwapOn": False,
            # Two kubelets of one machine would delete each other's logs.
            "podLogsDir": str(self.folder / "pods"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            # The statistics of the machine's disk are not to be had in every container that a test runs in.
            "localStorageCapacityIsolation": False,
        }
