"""The policies against a model of how a network plugin reads them."""

from typing import Any

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.render import render
from tests.mpijob import admission
from tests.mpijob.jobs import job

Labels = dict[str, str]
STRANGER = {"app": "other"}


def labels(spec: JobSpec, role: str) -> Labels:
    (manifest,) = (manifest for manifest in render(spec) if manifest["kind"] == "MPIJob")
    found: Labels = dict(admission.templates(manifest))[role]["metadata"]["labels"]
    return found


def admits(
    spec: JobSpec, direction: str, pod: Labels, peer: Labels | None, port: int, namespace: str = "default"
) -> bool:
    """Whether traffic of `pod` from or to `peer` is allowed. `peer` None is an address outside the cluster."""
    policies = [manifest["spec"] for manifest in render(spec) if manifest["kind"] == "NetworkPolicy"]
    selecting = [policy for policy in policies if policy["podSelector"]["matchLabels"].items() <= pod.items()]
    selecting = [policy for policy in selecting if direction in policy["policyTypes"]]
    if not selecting:
        return True
    rules = [rule for policy in selecting for rule in policy[direction.lower()]]
    return any(_peer(rule, peer, namespace) and _port(rule, port) for rule in rules)


def _peer(rule: dict[str, Any], peer: Labels | None, namespace: str) -> bool:
    peers = rule.get("from", rule.get("to"))
    return peers is None or any(_matches(one, peer, namespace) for one in peers)


def _matches(one: dict[str, Any], peer: Labels | None, namespace: str) -> bool:
    if "namespaceSelector" in one:
        return bool(one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == namespace)
    return peer is not None and namespace == "default" and one["podSelector"]["matchLabels"].items() <= peer.items()


def _port(rule: dict[str, Any], port: int) -> bool:
    ports = rule.get("ports")
    return ports is None or any(one["port"] <= port <= one.get("endPort", one["port"]) for one in ports)


def test_own_pods_reach_each_other_on_any_port() -> None:
    spec = job()
    launcher, worker = labels(spec, "Launcher"), labels(spec, "Worker")
    for port in (contract.SSH_PORT, contract.READY_PORT, 40_000):
        for pod, peer in ((launcher, worker), (worker, launcher), (worker, worker)):
            assert admits(spec, "Ingress", pod, peer, port)
            assert admits(spec, "Egress", pod, peer, port)


def test_nobody_else_reaches_them() -> None:
    spec = job()
    other = labels(job(name="other"), "Worker")
    for pod in (labels(spec, "Launcher"), labels(spec, "Worker")):
        for port in (contract.SSH_PORT, contract.READY_PORT, 40_000, contract.LAUNCHER_METRICS_PORT):
            assert not admits(spec, "Ingress", pod, STRANGER, port)
            assert not admits(spec, "Ingress", pod, other, port)
            assert not admits(spec, "Ingress", pod, labels(spec, "Worker"), port, namespace="elsewhere")


def test_monitoring_reaches_metrics_and_nothing_else() -> None:
    spec = job(workers__slots=3)
    worker = labels(spec, "Worker")
    for port in (contract.DISCOVERY_METRICS_PORT, contract.WORKER_METRICS_PORT, contract.WORKER_METRICS_PORT + 2):
        assert admits(spec, "Ingress", worker, STRANGER, port, namespace="monitoring")
    for port in (contract.SSH_PORT, contract.WORKER_METRICS_PORT + 3):
        assert not admits(spec, "Ingress", worker, STRANGER, port, namespace="monitoring")
    assert not admits(spec, "Ingress", worker, STRANGER, contract.WORKER_METRICS_PORT, namespace="elsewhere")


def test_ways_out_are_dns_storage_and_for_the_launcher_the_api_server() -> None:
    spec = job(network__storage_ports=[9000])
    launcher, worker = labels(spec, "Launcher"), labels(spec, "Worker")
    for pod in (launcher, worker):
        assert admits(spec, "Egress", pod, None, 53)
        assert admits(spec, "Egress", pod, None, 9000)
        assert not admits(spec, "Egress", pod, None, 80)
    assert admits(spec, "Egress", launcher, None, 6443)
    assert not admits(spec, "Egress", worker, None, 6443)


def test_it_can_be_left_out() -> None:
    assert "NetworkPolicy" not in {manifest["kind"] for manifest in render(job(network__policy=False))}
