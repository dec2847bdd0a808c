"""What the API server refuses of pods, and what it takes without effect (Kubernetes 1.34.4, apis/core/validation)."""

from typing import Any

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import ManifestPart
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from tests.mpijob.lint.overlay import overlaid
from tests.mpijob.lint.pod_cases import (
    GPU,
    LEFT_TO_THE_API_SERVER,
    REFUSED,
    REPEATED,
    RESOURCES,
    TAKEN,
    TOLERATIONS,
    VARIABLES,
    PodCase,
    whole,
)
from tests.mpijob.lint.rules_on import changed, findings


def worker(**fields: object) -> list[lint.Document]:
    return changed(ManifestPart.WORKER, fields)


@pytest.mark.parametrize("case", RESOURCES)
def test_resources_are_what_a_pod_may_have(case: PodCase) -> None:
    absent = {"cpu": None, "memory": None, GPU: None}
    resources = {part: absent | dict(case.value.get(part, {})) for part in ("limits", "requests")}
    assert len(findings("HE921", worker(resources=resources))) == case.faults


def test_what_is_no_quantity_is_told_once() -> None:
    documents = worker(resources={"limits": {GPU: "many"}, "requests": {GPU: 1}})
    assert (len(findings("HE913", documents)), findings("HE921", documents)) == (1, [])


@pytest.mark.parametrize("case", TOLERATIONS)
def test_tolerations_are_what_a_pod_may_have(case: PodCase) -> None:
    documents = changed(ManifestPart.WORKER_POD, {"spec": {"tolerations": [dict(case.value)]}})
    assert len(findings("HE922", documents)) == case.faults
    after, _ = lint.fix(documents, lint.select_rules(["HE922"]))
    assert len(findings("HE922", after)) == (1 if case.value == {"value": "gpu"} else 0)


@pytest.mark.parametrize("case", VARIABLES)
def test_variables_are_what_a_pod_may_have(case: PodCase) -> None:
    assert len(findings("HE923", worker(env=[dict(case.value)]))) == case.faults


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


@pytest.mark.parametrize(
    ("hard", "more", "messages"),
    [
        ({"requests.cpu": 1}, {}, ["states no cpu"]),
        ({"cpu": 1, "limits.memory": 1}, {}, ["states no cpu and no limits.memory"]),
        ({"pods": 1, "requests.nvidia.com/gpu": 1, "limits.ephemeral-storage": 1}, {}, []),
        ({"requests.cpu": 1}, {"scopes": ["Terminating"]}, []),
    ],
)
def test_a_quota_wants_amounts(hard: dict[str, int], more: dict[str, object], messages: list[str]) -> None:
    quota = {"kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard, **more}}
    text = overlaid("resources: null", ManifestPart.WORKER)
    documents, _ = lint.read(f"{text}---\n{dump([quota])}")
    assert [found.message for found in findings("HE927", documents)] == messages
    limits, _ = lint.read(f"{text}---\n{dump([quota, {'kind': 'LimitRange', 'metadata': {'name': 'team'}}])}")
    assert findings("HE927", limits) == []


def said(spec: dict[str, Any]) -> list[str]:
    """What the linter says of a worker's pod that no API server would take."""
    launcher = {"containers": [{"name": "main", "image": "example.com/train:1", "command": ["mpirun", "./a"]}]}
    replicas = {"Launcher": {"template": {"spec": launcher}}, "Worker": {"replicas": 1, "template": {"spec": spec}}}
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "a"}}
    documents, _ = lint.read(dump([job | {"spec": {"mpiReplicaSpecs": replicas}}]))
    return [found.rule.id for found in lint.check(documents).errors if found.rule.group in ("schema", "pod")]


@pytest.mark.parametrize("spec", REFUSED)
def test_a_refused_pod_is_found(spec: dict[str, Any]) -> None:
    assert len(said(whole(spec))) == 1


@pytest.mark.parametrize("spec", TAKEN)
def test_a_pod_that_is_taken_has_no_error(spec: dict[str, Any]) -> None:
    assert said(whole(spec)) == []


@pytest.mark.parametrize("spec", LEFT_TO_THE_API_SERVER)
def test_what_is_left_to_the_api_server(spec: dict[str, Any]) -> None:
    assert said(whole(spec)) == []


@pytest.mark.parametrize("spec", REPEATED)
def test_what_stands_twice_is_found(spec: dict[str, Any]) -> None:
    assert said(whole(spec)) == ["HE917"]


def test_a_value_that_differs_by_its_case_is_mended() -> None:
    documents = worker(imagePullPolicy="always")
    after, _ = lint.fix(documents, lint.select_rules(["HE904"]))
    assert findings("HE904", after) == []
