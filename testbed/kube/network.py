"""One bridge on this machine, and each node in a network namespace of its own on it.

Nothing here touches the machine's own addresses, and the rules that stand in for kube-proxy live in the nodes'
namespaces, where nobody else sees them and with which they vanish::

    this machine ── bridge 172.30.S.1 ──┬── veth ── node on-demand 172.30.S.2 ── bridge ── its pods 10.(200+S).0.0/24
      API server, DNS                   └── veth ── node spot      172.30.S.3 ── bridge ── its pods 10.(200+S).1.0/24
"""

import contextlib
import ipaddress
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.kube.errors import ClusterError
from testbed.kube.folders import NAME
from testbed.kube.ledger import Ledger

SERVICES: Final = "10.96.0.0/16"
API_SERVICE: Final = "10.96.0.1"
DNS_SERVICE: Final = "10.96.0.10"
"""Addresses that pods use; every node's namespace translates them."""


UPLINK: Final = "uplink"
"""The node's end of its cable. A pod's interface has another name, as on most machines."""


class NoNetemError(ClusterError):
    """This machine's kernel, or its `tc`, has no netem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnets:
    """The addresses of one cluster, chosen so that this machine does not use them yet."""

    index: int

    @property
    def bridge(self) -> str:
        """Interface of this machine that the nodes hang on."""
        return f"{NAME}-br{self.index}"

    @property
    def gateway(self) -> str:
        """This machine as the nodes and pods see it."""
        return f"172.30.{self.index}.1"

    @property
    def pods(self) -> str:
        """All pods of all nodes."""
        return f"10.{200 + self.index}.0.0/16"

    def node(self, number: int) -> str:
        """Address of a node (0, 1 ...)."""
        return f"172.30.{self.index}.{number + 2}"

    def node_pods(self, number: int) -> str:
        """Addresses of a node's pods."""
        return f"10.{200 + self.index}.{number}.0/24"

    def free(self, used: list[ipaddress.IPv4Network]) -> bool:
        """Tell whether none of them overlaps with a route of this machine."""
        ours = [ipaddress.IPv4Network(f"172.30.{self.index}.0/24"), ipaddress.IPv4Network(self.pods)]
        return not any(mine.overlaps(theirs) for mine in ours for theirs in used)


def choose_subnets() -> Subnets:
    """Return the first that are free.

    Raises:
        ClusterError: all are taken.

    """
    listed = json.loads(_run("ip", "-json", "-4", "route", "show", "table", "main"))
    used = [ipaddress.IPv4Network(route["dst"]) for route in listed if route["dst"] != "default"]
    for index in range(50):
        if (subnets := Subnets(index=index)).free(used):
            return subnets
    raise ClusterError("this machine routes all of 172.30.0.0/16 already: no addresses left for a cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """A node's namespace and its cable to the bridge."""

    subnets: Subnets
    number: int
    node: str

    @property
    def netns(self) -> str:
        """Name of the namespace."""
        return f"{NAME}-{self.node}"

    @property
    def cable(self) -> str:
        """This machine's end of the cable."""
        return f"{NAME}-v{self.subnets.index}n{self.number}"

    def set(self, *, up: bool) -> None:
        """Plug the cable in or pull it: a node with a pulled cable is a lost node."""
        _run("ip", "link", "set", self.cable, "up" if up else "down")

    def set_pods_mute(self, *, mute: bool) -> None:
        """Let nothing that the node's pods say leave the node; what is said to them arrives. The node stays Ready."""
        rule = ["FORWARD", "-s", self.subnets.node_pods(self.number), "-o", UPLINK, "-j", "DROP"]
        iptables = (*_within(self), "iptables", "-w")
        is_mute = subprocess.run([*iptables, "-C", *rule], capture_output=True, check=False).returncode == 0
        if is_mute != mute:
            _run(*iptables, "-I" if mute else "-D", *rule)

    @contextlib.contextmanager
    def losing(self, share: float) -> Iterator[None]:
        """Lose this share of all packets between the node and its pods on one side and all else on the other."""
        rules = [
            ["INPUT", "-i", UPLINK],
            ["OUTPUT", "-o", UPLINK],
            ["FORWARD", "-i", UPLINK],
            ["FORWARD", "-o", UPLINK],
        ]
        loses = ["-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP"]
        iptables = (*_within(self), "iptables", "-w")
        with contextlib.ExitStack() as undo:
            for rule in rules:
                _run(*iptables, "-I", *rule, *loses)
                undo.callback(_run, *iptables, "-D", *rule, *loses)
            yield

    @contextlib.contextmanager
    def emulating(self, *netem: str) -> Iterator[None]:
        """Let the kernel's netem treat what leaves the node so: `delay 50ms 20ms`, `loss 1%` (tc-netem(8)).

        Raises:
            NoNetemError: this kernel has none.

        """
        queue = (*_within(self), "tc", "qdisc")
        try:
            _run(*queue, "add", "dev", UPLINK, "root", "netem", *" ".join(netem).split())
        except ClusterError as error:
            raise NoNetemError(str(error)) from error
        try:
            yield
        finally:
            _run(*queue, "del", "dev", UPLINK, "root")


def make_bridge(ledger: Ledger, subnets: Subnets) -> None:
    """Make the bridge, and let what crosses it pass this machine's filter (br_netfilter shows it all that)."""
    ledger.note("interface", subnets.bridge)
    _run("ip", "link", "add", subnets.bridge, "type", "bridge")
    _run("ip", "address", "add", f"{subnets.gateway}/24", "dev", subnets.bridge)
    _run("ip", "link", "set", subnets.bridge, "up")
    for way in ("-i", "-o"):
        rule = [way, subnets.bridge, "-m", "comment", "--comment", f"hvd-elastic test cluster {NAME}", "-j", "ACCEPT"]
        ledger.note("rule", "filter", "FORWARD", *rule)
        _run("iptables", "-w", "-I", "FORWARD", *rule)


def make_node_link(ledger: Ledger, link: NodeLink, *, nodes: int, api_port: int, dns_port: int) -> None:
    """Make a node's namespace and cable, with routes to all other nodes' pods and the two services."""
    subnets = link.subnets
    ledger.note("netns", link.netns)
    ledger.note("interface", link.cable)
    _run("ip", "netns", "add", link.netns)
    _run("ip", "link", "add", link.cable, "type", "veth", "peer", "name", UPLINK, "netns", link.netns)
    _run("ip", "link", "set", link.cable, "master", subnets.bridge, "up")
    _run("ip", "route", "add", subnets.node_pods(link.number), "via", subnets.node(link.number))
    inside = ("ip", "-n", link.netns)
    _run(*inside, "address", "add", f"{subnets.node(link.number)}/24", "dev", UPLINK)
    for interface in ("lo", UPLINK):
        _run(*inside, "link", "set", interface, "up")
    _run(*inside, "route", "add", "default", "via", subnets.gateway)
    for other in set(range(nodes)) - {link.number}:
        _run(*inside, "route", "add", subnets.node_pods(other), "via", subnets.node(other))
    _run(*_within(link), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    _translate(link, "tcp", f"{API_SERVICE}:443", f"{subnets.gateway}:{api_port}")
    for protocol in ("udp", "tcp"):
        _translate(link, protocol, f"{DNS_SERVICE}:53", f"{subnets.gateway}:{dns_port}")


def cni_configuration(folder: Path, link: NodeLink, *, data: Path) -> None:
    """Write the node's CNI configuration. The network's name is this node's alone: CNI keeps addresses by it."""
    address = {
        "type": "host-local",
        "dataDir": str(data),
        "ranges": [[{"subnet": link.subnets.node_pods(link.number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": address}
    folder.mkdir(parents=True)
    (folder / "10.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": link.netns, "plugins": [bridge]}))


def _translate(link: NodeLink, protocol: str, service: str, target: str) -> None:
    address, port = service.split(":")
    rule = ["-d", address, "-p", protocol, "--dport", port, "-j", "DNAT", "--to-destination", target]
    for chain in ("PREROUTING", "OUTPUT"):
        _run(*_within(link), "iptables", "-w", "-t", "nat", "-A", chain, *rule)


def _within(link: NodeLink) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{link.netns}")


def _run(*command: str) -> str:
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
