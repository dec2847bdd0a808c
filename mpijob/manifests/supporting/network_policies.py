"""NetworkPolicies: only the job's own pods reach ssh, the rendezvous and Gloo, whose ports are chosen at run time."""

from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, pod_selector

_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def manifests(spec: JobSpec) -> list[Manifest]:
    """One policy for all pods of the job, and one that lets the launcher pod alone reach the API server."""
    if not spec.network.policy:
        return []
    all_pods = _policy(
        spec,
        spec.name,
        selector=pod_selector(spec),
        ingress=[{"from": [_own_pods(spec)]}, _monitoring(spec)],
        egress=[{"to": [_own_pods(spec)]}, _dns(), {"ports": [_tcp(port) for port in spec.network.storage_ports]}],
    )
    api_server = _policy(
        spec,
        f"{spec.name}.api-server",  # No job can have this name: it has a dot.
        selector=pod_selector(spec, Role.LAUNCHER),
        egress=[{"ports": [_tcp(port) for port in spec.network.api_ports]}],
    )
    return [all_pods, api_server]


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


def _dns() -> Manifest:
    return {"ports": [{"protocol": "UDP", "port": 53}, _tcp(53)]}


def _tcp(port: int) -> Manifest:
    return {"protocol": "TCP", "port": port}


def _monitoring(spec: JobSpec) -> Manifest:
    namespace = {"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: spec.network.monitoring_namespace}}}
    last = contract.WORKER_METRICS_PORT + spec.workers.slots - 1
    return {"from": [namespace], "ports": [{**_tcp(contract.DISCOVERY_METRICS_PORT), "endPort": last}]}
