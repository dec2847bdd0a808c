"""Where a job's pods may connect: peers that say what they mean, and ways that what the job needs is not cut from."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.network_spec import NODE_PORTS, NetworkPeer, port_count
from hvd_elastic.priorityclasses.problem import Problem

_TOKEN_SERVICES: Final = {Cloud.EKS: "AWS's STS", Cloud.AKS: "login.microsoftonline.com"}
"""Who takes the account's token, a file, and returns credentials. On GKE the metadata server asks for them."""
_TAKEN: Final = range(NODE_PORTS.stop, 61_000)
"""Ports of a node that Services and the node's own connections may have (NODE_PORTS says why)."""


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks `network`."""
    network = spec.network
    for key, peers in (("egress", network.egress), ("dns", network.dns), ("api_server", network.api_server)):
        for index, peer in enumerate(peers):
            yield from _peer(f"network.{key}[{index}]", peer)
        if peers and not network.policy:
            what = "says where pods may connect, but there is no NetworkPolicy"
            yield Problem(path=f"network.{key}", value=..., what=what, way_out="set network.policy: true, or remove it")
    if network.identity is True and spec.cloud is Cloud.ANY:
        what = "has no effect: which service hands out credentials is not known with cloud: any"
        yield Problem(path="network.identity", value=True, what=what, way_out="set cloud, or name it in network.egress")
    yield from _tokens(spec)
    yield from _host_ports(spec)


def _host_ports(spec: JobSpec) -> Iterator[Problem]:
    network = spec.network
    if not spec.workers.on_host_network:
        for key, value in (("host_port", network.host_port), ("nodes", network.nodes)):
            if value:
                what = "has no effect: the workers have addresses and ports of their own"
                way_out = "leave it out, or set workers.pod: {spec: {hostNetwork: true}}"
                yield Problem(path=f"network.{key}", value=value, what=what, way_out=way_out)
        return
    ports = spec.worker_ports.of_node(spec.workers.slots)
    if ports.stop > 65536 or (ports.start < _TAKEN.stop and ports.stop > _TAKEN.start):
        what = f"gives workers the node's ports {ports.start} to {ports.stop - 1}: those from {_TAKEN.start} to "
        what += f"{_TAKEN.stop - 1} are taken by Services and by connections that the node makes"
        most = NODE_PORTS.stop - port_count(spec.workers.slots)
        way_out = f"choose one from 1024 to {most}" if most >= NODE_PORTS.start else "lower workers.slots"
        yield Problem(path="network.host_port", value=network.host_port, what=what, way_out=way_out)
    if network.nodes and not network.policy:
        what = "says where nodes are, but there is no NetworkPolicy"
        yield Problem(path="network.nodes", value=..., what=what, way_out="set network.policy: true, or remove it")


def notes(spec: JobSpec) -> Iterator[str]:
    """What holds of the job's network that nobody asked for, in sentences."""
    if spec.workers.on_host_network:
        ports = spec.worker_ports.of_node(spec.workers.slots)
        yield (
            f"hostNetwork: each worker takes ports {ports.start} to {ports.stop - 1} of its node, so a node "
            "has one worker of this job at most, and the namespace must admit `privileged` (Pod Security)"
        )
        yield (
            "hostNetwork: NetworkPolicies mostly do not apply to these workers: whoever reaches the nodes reaches "
            "Gloo, which believes anyone; let a firewall of the nodes keep others out"
        )


def _peer(path: str, peer: NetworkPeer) -> Iterator[Problem]:
    inside = bool(peer.namespace or peer.pods)
    if not inside and peer.cidr is None:
        yield Problem(path=path, value=..., what="names no place", way_out="set cidr, or namespace and pods")
    if inside and peer.cidr is not None:
        what = "names addresses and pods: Kubernetes takes one of them"
        yield Problem(path=f"{path}.cidr", value=peer.cidr, what=what, way_out="write two items")


def _tokens(spec: JobSpec) -> Iterator[Problem]:
    """An account of a cloud is worth nothing where its tokens cannot be fetched."""
    network, account = spec.network, spec.workers.service_account
    who = _TOKEN_SERVICES.get(spec.cloud)
    if not network.policy or account is None or who is None or 443 in open_ports(spec):
        return
    what = f"cannot be used: {who} returns its credentials on port 443, which the NetworkPolicy blocks"
    way_out = "add 443 to network.storage_ports, or to the ports of an item of network.egress"
    yield Problem(path="workers.service_account", value=account, what=what, way_out=way_out)


def open_ports(spec: JobSpec) -> set[int]:
    """TCP ports on which pods reach at least one place outside the job."""
    peers = spec.network.egress
    named = {port for peer in peers for port in peer.ports}
    return named | (set(spec.network.storage_ports) if not peers or any(not peer.ports for peer in peers) else set())
