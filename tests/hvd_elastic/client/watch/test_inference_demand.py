"""Which pods come before a job, by what both ask for."""

from typing import Any

import pytest

from hvd_elastic.client.watch.inference_demand import claim_of, count_rivals
from hvd_elastic.mpijob.contract import ANNOTATION_GPU_RESOURCE

Json = dict[str, Any]


def pod(priority: int, *resources: str, gpu_resource: str = "") -> Json:
    annotations = {ANNOTATION_GPU_RESOURCE: gpu_resource} if gpu_resource else {}
    limits = dict.fromkeys(resources, "1")
    spec = {"priority": priority, "containers": [{"resources": {"limits": limits}}, {}]}
    return {"metadata": {"annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("worker", "rivals"),
    [
        (pod(-100, "nvidia.com/gpu", "rdma/hca"), 1),
        (pod(-100, "amd.com/gpu", "rdma/hca", gpu_resource="amd.com/gpu"), 2),
        (pod(-100, "rdma/hca"), 0),
        (pod(100, "nvidia.com/gpu"), 0),
    ],
)
def test_rivals_ask_for_the_same_gpus(worker: Json, rivals: int) -> None:
    """Who asks for the same adapters of a network alone is none."""
    others = [pod(100, "nvidia.com/gpu"), pod(100, "amd.com/gpu"), pod(100, "amd.com/gpu"), pod(100, "rdma/hca")]
    assert count_rivals(others, claim_of(worker)) == rivals
