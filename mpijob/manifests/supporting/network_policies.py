"""NetworkPolicies: only the job's own pods reach ssh, the rendezvous and Gloo, whose ports are chosen at run time.

The ways out are named too: storage, name servers, the API server for the launcher alone, and for workers the service
that hands out their cloud's credentials. The pods that copy a data set are not the job's own, and have a policy of
theirs: nobody connects to them.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.network_spec import NetworkPeer
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, pod_selector
from hvd_elastic.mpijob.manifests.supporting import bucket_volume, cloud_identity, staging

_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
_DNS_PORT: Final = 53
_DNS_LABELS: Final = ("kube-dns", "node-local-dns")
"""Values of `k8s-app` (kubernetes/kubernetes, `cluster/addons/dns`). CoreDNS keeps the label of kube-dns."""
_PRIVATE_BLOCKS: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
"""RFC 1918 and 6598."""
_DNS_BLOCKS: Final = (*_PRIVATE_BLOCKS, "169.254.20.10/32")
"""Private addresses, and NodeLocal DNSCache.

The labels alone do not do: a name server may be a process of the node, which no label selects. NodeLocal DNSCache
answers at 169.254.20.10 and at the Service's own address (kubernetes/kubernetes, `cluster/addons/dns/nodelocaldns`),
and in EKS Auto Mode CoreDNS runs beside the pods of each node.
"""
_PRIVATE_BLOCKS_IPV6: Final = ("fc00::/7",)
"""Unique local addresses (RFC 4193): those of Services, and of NodeLocal DNSCache. A job has blocks of one kind: AWS's
agent did not apply the rest of a policy that had one of the other kind than the cluster's
(aws/aws-network-policy-agent, pull request 321)."""
_GKE_DNS_BLOCKS: Final = ("169.254.169.254/32", "34.118.224.0/20")
"""Cloud DNS for GKE answers at the first; the second holds the addresses that GKE gives Services by default."""


def manifests(spec: JobSpec) -> list[Manifest]:
    """One policy for all pods of the job, one that lets the launcher pod alone reach the API server, one that lets
    workers alone reach the service that hands out credentials, if the job needs any, and one for the copy of its data.
    """
    if not spec.network.policy:
        return []
    own = [_own_pods(spec), *_nodes(spec)]
    all_pods = _policy(
        spec,
        spec.name,
        selector=pod_selector(spec),
        ingress=[{"from": own}, _monitoring(spec)],
        egress=[
            {"to": own},
            *_dns(spec),
            *_ways_out(spec.network.egress, spec.network.storage_ports),
        ],
    )
    api_server = _policy(
        spec,
        f"{spec.name}.api-server",  # No job can have this name: it has a dot.
        selector=pod_selector(spec, Role.LAUNCHER),
        egress=to_api_server(spec),
    )
    return [all_pods, api_server, *_identity(spec), *stage(spec)]


def stage(spec: JobSpec) -> list[Manifest]:
    """The policy of the pods that copy the data set, if the description has `stage`."""
    if spec.stage is None or not spec.network.policy:
        return []
    ports = dict.fromkeys([*spec.network.storage_ports, *filter(None, [spec.stage.port])])
    egress = [
        *_dns(spec),
        *_ways_out(spec.network.egress, list(ports)),
        *_to_services(cloud_identity.services_of_copy(spec)),
    ]
    return [_policy(spec, f"{spec.name}.stage", selector=staging.selector(spec), ingress=[], egress=egress)]


def to_bucket(spec: JobSpec) -> list[Manifest]:
    """The egress rules of a pod that is not a worker and mounts the bucket of results by itself; none: nodes do."""
    if spec.output is None or not bucket_volume.is_inline(spec.output.bucket):
        return []
    ways_out = _ways_out(spec.network.egress, spec.network.storage_ports)
    return [*_dns(spec), *ways_out, *_to_services(cloud_identity.services(spec))]


def _identity(spec: JobSpec) -> list[Manifest]:
    egress = _to_services(cloud_identity.services(spec))
    selector = pod_selector(spec, Role.WORKER)
    return [_policy(spec, f"{spec.name}.identity", selector=selector, egress=egress)] if egress else []


def _to_services(services: Iterable[cloud_identity.IdentityService]) -> list[Manifest]:
    return [
        {"to": [_block(str(ip_network(one.address)))], "ports": [_tcp(port) for port in one.ports]} for one in services
    ]


def _policy(
    spec: JobSpec,
    name: str,
    *,
    selector: dict[str, str],
    ingress: list[Manifest] | None = None,
    egress: list[Manifest],
) -> Manifest:
    rules: Manifest = {"podSelector": {"matchLabels": selector}}
    rules["policyTypes"] = ["Egress"] if ingress is None else ["Ingress", "Egress"]
    if ingress is not None:
        rules["ingress"] = ingress
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(spec, name),
        "spec": {**rules, "egress": egress},
    }


def _own_pods(spec: JobSpec) -> Manifest:
    return {"podSelector": {"matchLabels": pod_selector(spec)}}


def _nodes(spec: JobSpec) -> list[Manifest]:
    """Workers of the nodes' own network: most plugins know them by their nodes' addresses alone, not by labels.

    https://kubernetes.io/docs/concepts/services-networking/network-policies/#networkpolicy-and-hostnetwork-pods
    """
    if not spec.workers.on_host_network:
        return []
    private = _PRIVATE_BLOCKS_IPV6 if spec.network.ipv6 else _PRIVATE_BLOCKS
    return [_block(one) for one in spec.network.nodes or private]


def _dns(spec: JobSpec) -> list[Manifest]:
    ports = _both(_DNS_PORT)
    if not spec.network.dns:
        labels = {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": list(_DNS_LABELS)}]}
        pods = {"namespaceSelector": _named("kube-system"), "podSelector": labels}
        return [{"to": [pods, *map(_block, _dns_blocks(spec))], "ports": ports}]
    return [
        {"to": [_peer(one)], "ports": [each for port in one.ports for each in _both(port)] or ports}
        for one in spec.network.dns
    ]


def _dns_blocks(spec: JobSpec) -> tuple[str, ...]:
    if spec.network.ipv6:
        return _PRIVATE_BLOCKS_IPV6
    return (*_DNS_BLOCKS, *(_GKE_DNS_BLOCKS if spec.cloud is Cloud.GKE else ()))


def to_api_server(spec: JobSpec) -> list[Manifest]:
    """The egress rules of a pod that asks the API server."""
    return _ways_out(spec.network.api_server, spec.network.api_ports)


def _ways_out(peers: Sequence[NetworkPeer], ports: Sequence[int]) -> list[Manifest]:
    """One rule for each peer that names ports, and one for all others. Without peers: anywhere."""
    default = [_peer(one) for one in peers if not one.ports]
    own = [{"to": [_peer(one)], "ports": [_tcp(port) for port in one.ports]} for one in peers if one.ports]
    if default or not own:
        return [{**({"to": default} if default else {}), "ports": [_tcp(port) for port in ports]}, *own]
    return own


def _peer(one: NetworkPeer) -> Manifest:
    if one.cidr:
        return _block(one.cidr)
    namespace = {"namespaceSelector": _named(one.namespace)} if one.namespace else {}
    return {**namespace, **({"podSelector": {"matchLabels": dict(one.pods)}} if one.pods else {})}


def _block(cidr: str) -> Manifest:
    return {"ipBlock": {"cidr": cidr}}


def _named(namespace: str) -> Manifest:
    return {"matchLabels": {_NAMESPACE_LABEL: namespace}}


def _both(port: int) -> list[Manifest]:
    return [{"protocol": "UDP", "port": port}, _tcp(port)]


def _tcp(port: int) -> Manifest:
    return {"protocol": "TCP", "port": port}


def _monitoring(spec: JobSpec) -> Manifest:
    namespace = {"namespaceSelector": _named(spec.network.monitoring_namespace)}
    last = contract.WORKER_METRICS_PORT + spec.workers.slots - 1
    return {"from": [namespace], "ports": [{**_tcp(contract.DISCOVERY_METRICS_PORT), "endPort": last}]}
