"""What the API server refuses of pods, and what it takes without effect (Kubernetes 1.34.4, apis/core/validation)."""

from typing import Any

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import ManifestPart
from tests.mpijob.lint.rules_on import changed, findings

GPU = "nvidia.com/gpu"


def worker(**fields: object) -> list[lint.Document]:
    return changed(ManifestPart.WORKER, fields)


@pytest.mark.parametrize(
    ("limits", "requests", "count"),
    [
        ({GPU: 0.5}, {}, 1),
        ({GPU: "500m"}, {}, 1),
        ({GPU: "1k"}, {}, 0),
        ({GPU: 2}, {GPU: 1}, 1),
        ({GPU: 2}, {GPU: "2"}, 0),
        ({}, {GPU: 1}, 1),
        ({"rdma/hca": 1}, {"rdma/hca": 2}, 1),
        ({"cpu": 2, "memory": "32Gi"}, {"cpu": 4, "memory": "64Gi"}, 2),
        ({"cpu": 2}, {"cpu": "2000m"}, 0),
        ({"cpu": 0.5}, {}, 0),
        ({"hugepages-2Mi": "512Mi"}, {}, 0),
        ({"hugepages-2Mi": "512Mi"}, {"hugepages-2Mi": "256Mi"}, 1),
        ({"example.kubernetes.io/thing": 2}, {"example.kubernetes.io/thing": 1}, 0),
        ({GPU: -1}, {}, 1),
        ({GPU: "many"}, {GPU: 1}, 0),  # HE913
    ],
)
def test_resources_are_what_a_pod_may_have(limits: Any, requests: Any, count: int) -> None:
    base = {"cpu": None, "memory": None, GPU: None}
    documents = worker(resources={"limits": base | limits, "requests": base | requests})
    assert len(findings("HE921", documents)) == count


@pytest.mark.parametrize(
    ("toleration", "count"),
    [
        ({"key": "pool", "operator": "Exists", "value": "gpu"}, 1),
        ({"key": "pool", "operator": "Equals", "value": "gpu"}, 1),
        ({"key": "pool", "value": "gpu", "effect": "Noschedule"}, 1),
        ({"key": "pool", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 20}, 1),
        ({"key": "pool", "operator": "Exists", "tolerationSeconds": 20}, 1),
        ({"value": "gpu"}, 1),
        ({"key": "pool", "operator": "Equals", "effect": "Noschedule"}, 2),
        ({"key": "pool", "value": "gpu", "effect": "NoSchedule"}, 0),
        ({"operator": "Exists"}, 0),
        ({"key": "pool", "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 20}, 0),
    ],
)
def test_tolerations_are_what_a_pod_may_have(toleration: Any, count: int) -> None:
    documents = changed(ManifestPart.WORKER_POD, {"spec": {"tolerations": [toleration]}})
    assert len(findings("HE922", documents)) == count
    after, _ = lint.fix(documents, lint.select_rules(["HE922"]))
    assert len(findings("HE922", after)) == (1 if toleration == {"value": "gpu"} else 0)


@pytest.mark.parametrize(
    ("variable", "count"),
    [
        ({"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, 1),
        ({"name": "A", "valueFrom": {}}, 1),
        ({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "a"}, "secretKeyRef": {"name": "s", "key": "k"}}}, 1),
        ({"name": "", "value": "x"}, 1),
        ({"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, 0),
        ({"name": "A B", "value": "x"}, 0),  # Kubernetes 1.34 takes it
    ],
)
def test_variables_are_what_a_pod_may_have(variable: Any, count: int) -> None:
    assert len(findings("HE923", worker(env=[variable]))) == count


@pytest.mark.parametrize(
    ("memory", "messages"), [(64, ["is 64 bytes"]), ("16000m", ["is 16 bytes"]), (0, []), ("64Mi", [])]
)
def test_memory_has_a_unit(memory: object, messages: list[str]) -> None:
    documents = worker(resources={"limits": {"memory": memory}, "requests": None})
    assert [found.message for found in findings("HE924", documents)] == messages


@pytest.mark.parametrize(
    ("annotation", "count"),
    [
        ("k8s.v1.cni.cncf.io/networks", 1),
        ("sidecar.istio.io/inject", 1),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", 1),
        ("karpenter.sh/do-not-disrupt", 1),
        ("scheduling.volcano.sh/queue-name", 0),  # the operator reads it from the job
        ("hvd-elastic.dev/wanted-workers", 0),
        ("kubectl.kubernetes.io/last-applied-configuration", 0),
    ],
)
def test_pods_have_no_annotation_of_the_job(annotation: str, count: int) -> None:
    documents = changed(ManifestPart.JOB, {"metadata": {"annotations": {annotation: "x"}}})
    assert len(findings("HE925", documents)) == count


@pytest.mark.parametrize(
    ("version", "policy", "count"),
    [
        ("v1", None, 1),
        ("v1", "ClusterFirst", 1),
        ("v1", "ClusterFirstWithHostNet", 0),
        ("v1", "None", 0),
        ("v2beta1", None, 0),
    ],
)
def test_the_operator_of_v1_leaves_pods_their_nodes_dns(version: str, policy: str | None, count: int) -> None:
    pod = {"hostNetwork": True, "dnsPolicy": policy}
    patch = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}}
    documents = changed(ManifestPart.JOB, {"apiVersion": f"kubeflow.org/{version}", **patch})
    assert len(findings("HE926", documents)) == count


@pytest.mark.parametrize(
    ("written", "meant"),
    [("backoffLimit", "spec.runPolicy.backoffLimit"), ("slotsPerWorkers", "slotsPerWorker"), ("qwertz", "")],
)
def test_a_field_in_the_wrong_place_is_named_with_its_place(written: str, meant: str) -> None:
    (found,) = findings("HE901", changed(ManifestPart.JOB, {"spec": {written: 1}}))
    assert found.message == "no such field" + (f"; did you mean {meant}?" if meant else "")
