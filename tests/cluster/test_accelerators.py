"""Jobs of GPUs that are not `nvidia.com/gpu`: they find their tainted node, train, and give way to inference."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(540, func_only=True)]

NODE: Final = "spot"
TAINTS: Final = {"amd.com/gpu": "amd.com/gpu", "nvidia.com/mig-1g.10gb": "nvidia.com/gpu"}
"""Of the nodes with such a resource, by convention and as clouds set them."""


@pytest.fixture(params=list(TAINTS))
def resource(cluster: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """The node has so many of a resource as a job needs, the taint that goes with it, and no other GPUs."""
    node, name = cluster.local().nodes[NODE], str(request.param)
    taint = {"key": TAINTS[name], "value": "present", "effect": "NoSchedule"}
    node.set_gpus(cluster.kubectl, 0)
    node.set_gpus(cluster.kubectl, SIZE, name)
    cluster.kubectl.patch("node", NODE, {"spec": {"taints": [*node.node.taints, taint]}})
    yield name
    cluster.kubectl.patch("node", NODE, {"spec": {"taints": [*node.node.taints]}})
    node.set_gpus(cluster.kubectl, 0, name)
    node.set_gpus(cluster.kubectl, node.node.gpus)


def test_a_job_of_other_gpus_trains_and_gives_way(
    cluster: Site, namespace: Kubectl, timeline: Timeline, resource: str
) -> None:
    workers = jobs.workers((1, SIZE, SIZE), gpu_resource=resource)
    job = start(cluster, namespace, "launch", workers=workers)
    job.wait_size(SIZE)
    job.wait_steps(10)
    for pod in job.pods(Role.WORKER):
        assert pod["spec"]["containers"][0]["resources"]["limits"][resource] == "1"
    told = {row["check"]: row for row in json.loads(call(namespace, "doctor", "-o", "json", exit_code=None))}
    assert f"{SIZE} {resource}" in told["gpus"]["evidence"]

    timeline.mark("one GPU for inference")
    load = inference.deploy(cluster, namespace, resource=resource)
    load.scale(1)
    job.wait_size(SIZE - 1)
    load.wait(1)
    job.wait_steps(10)

    back = timeline.mark("given back")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    job.wait_steps(10)
    nothing_lost(job.account)
    bill = json.loads(call(namespace, "cost", job.name, "-o", "json"))
    assert bill["gpu_seconds"] > 0, "the sidecar counts what the job calls its GPUs"
    assert bill["lent_gpu_seconds"] > 0
