"""Nodes and pods as the API server writes them."""

from typing import Any

import pytest

from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, GpuPod, Placement, counted
from hvd_elastic.mpijob.contract import GPU_RESOURCE, LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_REPLICA_INDEX

Json = dict[str, Any]


def node(**changes: Any) -> Json:
    status = {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}, "status": status, **changes}


def pod(phase: str = "Running", labels: dict[str, str] | None = None, **spec: Any) -> Json:
    gpus = [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}, {"resources": {}}]
    meta = {"name": "p-worker-3", "namespace": "team", "labels": labels or {}}
    return {"metadata": meta, "spec": {"containers": gpus, **spec}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"unschedulable": True}},
        {"status": {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}},
    ],
)
def test_a_node_that_takes_no_gpu_pods_does_not_count(changes: Json) -> None:
    assert GpuNode.from_json(node(), GPU_RESOURCE) is not None
    assert GpuNode.from_json(node(**changes), GPU_RESOURCE) is None


def test_a_worker_is_known_by_the_operators_labels() -> None:
    labels = {LABEL_JOB_NAME: "bert", LABEL_JOB_ROLE: "worker", LABEL_REPLICA_INDEX: "7"}
    (read,) = GpuPod.each_from_json(pod(labels=labels, nodeName="n"))
    assert (read.job, read.index, read.gpus, read.node) == ("team/bert", 7, 2, "n")


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(ended: str) -> None:
    assert GpuPod.each_from_json(pod(ended)) == ()


def test_an_init_container_may_need_more_than_all_that_run_together() -> None:
    (read,) = GpuPod.each_from_json(pod(initContainers=[{"resources": {"requests": {"nvidia.com/gpu": "3"}}}]))
    assert read.gpus == 3


def test_a_pod_counts_for_each_resource_that_it_asks_for() -> None:
    """Not for CPUs and memory, which have no domain."""
    limits = {"amd.com/gpu": "2", "rdma/hca": "1", "cpu": "8", "example.com/none": "0"}
    asks = pod(containers=[{"resources": {"limits": limits}}, {"resources": {"limits": {"amd.com/gpu": "1"}}}])
    assert {one.resource: one.gpus for one in GpuPod.each_from_json(asks)} == {"amd.com/gpu": 3, "rdma/hca": 1}
    status = {"allocatable": {"amd.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    has = GpuNode.from_json(node(status=status), "amd.com/gpu")
    assert has is not None
    assert [(one.resource, one.gpus) for one in counted(GpuPod.each_from_json(asks), [has])] == [("amd.com/gpu", 3)]
    assert GpuNode.from_json(node(status=status), GPU_RESOURCE) is None


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"tolerations": [{"operator": "Exists"}]}, True),
    ],
)
def test_a_pod_fits_the_nodes_that_its_selector_names(spec: Json, fits: bool) -> None:
    read = GpuNode.from_json(node(), GPU_RESOURCE)
    assert read is not None
    assert Placement.from_json(spec).fits(read) is fits


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ([], False),
        ([{"key": "spot", "operator": "Exists"}], True),
        ([{"key": "spot", "value": "true", "effect": "NoSchedule"}], True),
        ([{"key": "spot", "value": "false"}], False),
        ([{"key": "spot", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "other", "operator": "Exists"}], False),
    ],
)
def test_a_tainted_node_takes_only_pods_that_tolerate_it(tolerations: list[Json], fits: bool) -> None:
    tainted = node(spec={"taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]})
    read = GpuNode.from_json(tainted, GPU_RESOURCE)
    assert read is not None
    assert Placement.from_json({"tolerations": tolerations}).fits(read) is fits


def test_one_term_of_the_affinity_must_match() -> None:
    read = GpuNode.from_json(node(), GPU_RESOURCE)
    assert read is not None

    def placement(*values: str) -> Placement:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [one]}]} for one in values]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return Placement.from_json({"affinity": {"nodeAffinity": required}})

    assert placement("b", "a").fits(read)
    assert not placement("b", "c").fits(read)
