"""The whole cluster: up, down, and attached to from another process."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from testbed.kube import (
    addons,
    controlplane,
    folders,
    gomodules,
    host,
    images,
    kwok,
    network,
    node,
    store,
    waiting,
)
from testbed.kube.certificates import Authority
from testbed.kube.controlplane import CGROUP, ControlPlane
from testbed.kube.daemons import Daemon, weigh
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from testbed.kube.ledger import Ledger
from testbed.kube.network import Subnets

_PLAN: Final = "cluster.json"
"""Written last: a state folder without it is what a crash left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster of this machine."""

    plane: ControlPlane

    @property
    def kubectl(self) -> Kubectl:
        """kubectl with an administrator's rights."""
        return Kubectl(program=self.plane.programs / "kubectl", kubeconfig=self.plane.admin)

    @property
    def nodes(self) -> dict[str, node.Running]:
        """Its nodes by name."""
        described = enumerate(node.NODES)
        return {each.name: node.Running(node=each, plane=self.plane, number=number) for number, each in described}

    def daemon(self, name: str) -> Daemon:
        """Return one of its processes: `kube-apiserver`, `spot-kubelet` ..."""
        return Daemon.load(self.plane.state, name)

    def daemons(self) -> list[Daemon]:
        """Return all of its processes."""
        return [self.daemon(file.stem) for file in sorted((self.plane.state / "daemons").glob("*.json"))]

    def ended(self) -> list[str]:
        """Return the names of its processes that are not there: all of them, after the machine was started again."""
        return [daemon.name for daemon in self.daemons() if not daemon.alive()]

    def restart_api_server(self, *, away_seconds: float = 0) -> None:
        """Stop the API server, leave it away for a while, and start it as it was; it is ready when this returns."""
        self.stop_api_server()
        time.sleep(away_seconds)
        self.start_api_server()
        self.restart_mpi_operator()

    def renew_certificate(self) -> None:
        """Start the API server anew with another certificate of the cluster's authority."""
        controlplane.certify_api_server(self.plane, Authority.load(self.plane.keys))
        self.restart_api_server()

    def stop_api_server(self) -> None:
        """Kill the API server."""
        self.daemon("kube-apiserver").stop(with_signal=signal.SIGKILL)

    def start_api_server(self) -> None:
        """Start it as it was, if it does not run; it is ready when this returns. The operator may have ended."""
        server = self.daemon("kube-apiserver")
        if not server.alive():
            server.start()
        controlplane.wait_ready(self.plane)

    def restart_mpi_operator(self) -> None:
        """As its Deployment would: it ends when the API server goes away under it."""
        operator = self.daemon("mpi-operator")
        operator.stop(with_signal=signal.SIGKILL)
        # Ready says the API server before it has read all roles, and the operator ends at the first refusal.
        waiting.until("the operator's rights are known", self._operator_may_watch, within_seconds=30)
        operator.start()

    def _operator_may_watch(self) -> bool:
        account = "system:serviceaccount:mpi-operator:mpi-operator"
        try:
            return "yes" in self.kubectl("auth", "can-i", "watch", "configmaps", "--all-namespaces", f"--as={account}")
        except ClusterError:
            return False

    def load_image(self, layout: store.Layout, tag: str, name: str) -> None:
        """Give every node an image that it lacks."""
        for running in self.nodes.values():
            if name not in store.images(running.socket):
                store.load(running.socket, running.folder / "containerd", layout, tag, name)


def attach() -> Cluster | None:
    """Return the cluster that was brought up, None if there is none. A part of it may have `ended`."""
    try:
        value = json.loads((folders.state() / _PLAN).read_text())
    except FileNotFoundError:
        return None
    value |= {
        "state": Path(value["state"]),
        "subnets": Subnets(**value["subnets"]),
        "etcd_ports": tuple(value["etcd_ports"]),
    }
    return Cluster(plane=ControlPlane(**value))


def up(*, with_image: bool = True, kwok_nodes: int = 0, ipv6: bool = False) -> Cluster:
    """Bring the cluster up; nothing is left of it if that fails. One that has lost a part is taken down first.

    `ipv6`: nodes, pods and services have IPv6 addresses and no others, but for the nodes of kwok.

    Raises:
        MissingError: this machine cannot run one.
        ClusterError: a part did not start, or a cluster runs already.

    """
    host.require()
    with folders.alone():
        if (found := attach()) and not found.ended():
            raise ClusterError("a cluster runs already: `python -m testbed.kube down` ends it")
        ledger = Ledger(state=folders.state())
        ledger.take_down()
        try:
            return _bring_up(ledger, with_image=with_image, kwok_nodes=kwok_nodes, ipv6=ipv6)
        except BaseException:
            ledger.take_down()
            raise


def prepare() -> None:
    """Make all that `up` needs and that takes long: the Kubernetes programs, the product's image, the nodes' store.

    Raises:
        MissingError: this machine cannot run a cluster.
        ClusterError: a build failed.

    """
    host.require()
    with folders.alone():
        if (found := attach()) and not found.ended():
            images.build()
            return
        ledger = Ledger(state=folders.state())
        ledger.take_down()
        try:
            _make_parts(ledger, with_image=True)
        finally:
            ledger.take_down()


def down() -> None:
    """Take down whatever there is of a cluster, half a one too."""
    with folders.alone():
        Ledger(state=folders.state()).take_down()


def _make_parts(ledger: Ledger, *, with_image: bool) -> None:
    chosen = (
        gomodules.kubernetes(gomodules.chosen("kubernetes")),
        gomodules.mpi_operator(gomodules.chosen("mpi-operator")),
    )
    for modules in (*chosen, gomodules.DNS_KWOK, gomodules.PAUSE):
        gomodules.binaries(modules)
    ledger.note("cgroup", CGROUP)
    weigh(CGROUP)
    with folders.alone("store"):
        _fill_store(ledger.state, with_image=with_image)


def _bring_up(ledger: Ledger, *, with_image: bool, kwok_nodes: int, ipv6: bool) -> Cluster:
    _make_parts(ledger, with_image=with_image)
    subnets = network.choose_subnets(ipv6=ipv6)
    network.make_bridge(ledger, subnets)
    plane = controlplane.plan(ledger.state, subnets)
    cluster = Cluster(plane=plane)
    authority = Authority.create(plane.keys)
    for running in cluster.nodes.values():
        running.make_link(ledger)
    with ThreadPoolExecutor() as pool:
        containerds = [pool.submit(running.start_containerd, ledger) for running in cluster.nodes.values()]
        controlplane.start(plane, authority)
        for started in containerds:
            started.result()
        _populate(cluster, ledger, authority, pool)
    if kwok_nodes:
        kwok.start(plane, cluster.kubectl, nodes=kwok_nodes)
    (ledger.state / _PLAN).write_text(json.dumps(asdict(plane), default=str))
    return cluster


def _populate(cluster: Cluster, ledger: Ledger, authority: Authority, pool: ThreadPoolExecutor) -> None:
    kubectl = cluster.kubectl
    for running in cluster.nodes.values():
        running.start_kubelet(ledger, authority)
    waits = [pool.submit(running.furnish, kubectl) for running in cluster.nodes.values()]
    addons.start_mpi_operator(cluster.plane, kubectl, netns=cluster.nodes[node.ON_DEMAND.name].link.netns)
    addons.start_dns(cluster.plane, kubectl)
    for ready in waits:
        ready.result()
    addons.wait_mpi_operator(kubectl)


def _fill_store(state: Path, *, with_image: bool) -> None:
    """See to it that the store has the images that every node starts with."""
    wanted = {f"{images.REPOSITORY}:{images.build()}"} if with_image else set()
    known = store.folder() / "images"  # goes with the store: one without it is empty
    if known.exists() and {store.PAUSE_IMAGE, *wanted} <= set(known.read_text().split()):
        return
    with store.served(state, f"{CGROUP}/daemons/store") as socket:
        if store.PAUSE_IMAGE not in store.images(socket):
            store.load(socket, store.folder(), store.pause_layout(state / "pause"), "1", store.PAUSE_IMAGE)
        for name in wanted - store.images(socket):
            store.load(socket, store.folder(), images.layout(), name.rpartition(":")[2], name)
            store.remove_older(socket, name)
        known.write_text("\n".join(store.images(socket)))
