"""Accelerators under the names that device plugins give them, and the launcher that is a host itself."""

from typing import Any

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.contract import ENV_POD_UID
from hvd_elastic.mpijob.lint.rule import ManifestPart
from tests.mpijob.lint.rules_on import HOROVODRUN, changed, findings

LEGACY = """
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: pair}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: main
            command: [horovodrun, -np, "NP", --min-np, "1", --host-discovery-script, /etc/mpi/discover_hosts.sh]
            args: [python, t.py]
            resources: {limits: {RESOURCE: 1}}
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: main, resources: {limits: {RESOURCE: 1}}}]}}
"""


def legacy(resource: str, processes: int = 2) -> list[lint.Document]:
    documents, problems = lint.read(LEGACY.replace("RESOURCE", resource).replace("NP", str(processes)))
    assert problems == []
    return documents


def with_gpus(part: ManifestPart, resource: str, amount: object = 1) -> list[lint.Document]:
    return changed(part, {"resources": {"limits": {"cpu": 1, "memory": "4Gi", resource: amount}}})


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
def test_a_launcher_of_v1_with_a_gpu_is_a_host_and_keeps_it(resource: str) -> None:
    documents = legacy(resource)
    assert findings("HE307", documents) == []
    assert findings("HE152", documents) == []  # two slots, one of them the launcher's
    after, _ = lint.fix(documents)
    assert f"{resource}: 1" in str(after[0].value).replace("'", "")
    (found,) = findings("HE152", legacy(resource, processes=3))
    assert found.message == "1 worker and the launcher x 1 slot make only 2 processes"


def test_v1_knows_a_gpu_by_its_name_alone() -> None:
    assert len(findings("HE307", legacy("nvidia.com/mig-1g.5gb"))) == 1
    (found,) = findings("HE152", legacy("nvidia.com/mig-1g.5gb"))
    assert found.message == "1 worker x 1 slot make only 1 process"


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "amd.com/gpu",
        "amd.com/cpx_nps1",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
    ],
)
def test_an_accelerator_is_known_by_its_plugins_name(resource: str) -> None:
    worker = with_gpus(ManifestPart.WORKER, resource, 2)
    assert len(findings("HE158", worker)) == 1
    assert len(findings("HE310", changed(ManifestPart.WORKER, {**worker_of(worker), "volumeMounts": []}))) == 1
    (found,) = findings("HE307", with_gpus(ManifestPart.LAUNCHER, resource))
    assert bool(found.edits) == resource.startswith("nvidia.com/")


@pytest.mark.parametrize(
    ("resource", "number", "slots", "labels", "message"),
    [
        ("nvidia.com/gpu", 2, 1, {}, "2 GPUs, but 1 process per worker"),
        ("nvidia.com/gpu", 2, 2, {}, None),
        ("amd.com/cpx_nps1", 2, 2, {}, None),
        ("nvidia.com/mig-1g.10gb", 1, 1, {}, None),
        ("nvidia.com/mig-1g.10gb", 1, 2, {}, "1 GPU, but 2 processes per worker"),
        ("nvidia.com/mig-1g.10gb", 2, 2, {}, "a worker can use one MIG instance: CUDA shows a process a single one"),
        (
            "nvidia.com/gpu",
            2,
            2,
            {"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"},
            "a worker can use one MIG instance: CUDA shows a process a single one",
        ),
        (
            "nvidia.com/gpu.shared",
            2,
            2,
            {},
            "a worker can use one share of a GPU: a second may be a turn on the same GPU",
        ),
    ],
)
def test_of_parts_of_a_gpu_a_worker_uses_one(
    resource: str, number: int, slots: int, labels: dict[str, str], message: str | None
) -> None:
    none: dict[str, int | None] = {"nvidia.com/gpu": None}
    container = {"name": "worker", "resources": {"limits": none | {resource: number}, "requests": none}}
    spec = {"nodeSelector": labels, "containers": [container]}
    command = [*HOROVODRUN, "--slots-per-host", str(slots), "python", "train.py"]
    launcher = {"spec": {"containers": [{"name": "launcher", "command": command, "args": None}]}}
    replicas = {"Launcher": {"template": launcher}, "Worker": {"template": {"spec": spec}}}
    documents = changed(ManifestPart.JOB, {"spec": {"mpiReplicaSpecs": replicas}})
    assert [found.message for found in findings("HE158", documents)] == ([message] if message else [])


def worker_of(documents: list[lint.Document]) -> dict[str, Any]:
    job: Any = documents[-1].value
    main = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    return {"resources": main["resources"]}


@pytest.mark.parametrize("resource", ["rdma/hca", "vpc.amazonaws.com/efa", "nvidia.com/rail0", "hugepages-2Mi"])
def test_what_is_no_accelerator_is_none(resource: str) -> None:
    assert findings("HE158", with_gpus(ManifestPart.WORKER, resource, 2)) == []


def test_on_the_host_network_a_policy_is_no_help() -> None:
    (found,) = findings("HE441", changed(ManifestPart.LAUNCHER_POD, {"spec": {"hostNetwork": True}}))
    assert found.message == "on the host network most network plugins ignore NetworkPolicies"


def test_workers_that_are_told_apart_may_share_their_nodes_address() -> None:
    on_nodes = {"spec": {"hostNetwork": True}}
    (found,) = findings("HE313", changed(ManifestPart.WORKER_POD, on_nodes))
    assert "same address" in found.message
    env = [{"name": ENV_POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    named = changed(
        ManifestPart.WORKER_POD, {"spec": {**on_nodes["spec"], "containers": [{"name": "worker", "env": env}]}}
    )
    assert findings("HE313", named) == []
