"""Where a job's pods may connect: peers that say what they mean, and ways that what the job needs is not cut from."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.network_spec import NetworkPeer
from hvd_elastic.priorityclasses.problem import Problem

_TOKEN_SERVICES: Final = {Cloud.EKS: "AWS's STS", Cloud.AKS: "login.microsoftonline.com"}
"""Who takes the account's token, a file, and returns credentials. On GKE the metadata server asks for them."""


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
    yield from _endpoint(spec)


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


def _endpoint(spec: JobSpec) -> Iterator[Problem]:
    """The policy of the copy adds the port of `stage.endpoint` to the peers that name no port."""
    peers, stage = spec.network.egress, spec.stage
    port = stage.endpoint_port if stage else None
    if not spec.network.policy or stage is None or port is None or not peers or any(not peer.ports for peer in peers):
        return
    if port not in open_ports(spec):
        what = f"is on port {port}, which the NetworkPolicy blocks"
        yield Problem(
            path="stage.endpoint", value=stage.endpoint, what=what, way_out=f"name it, with {port}, in network.egress"
        )


def open_ports(spec: JobSpec) -> set[int]:
    """TCP ports on which pods reach at least one place outside the job."""
    peers = spec.network.egress
    named = {port for peer in peers for port in peer.ports}
    return named | (set(spec.network.storage_ports) if not peers or any(not peer.ports for peer in peers) else set())
