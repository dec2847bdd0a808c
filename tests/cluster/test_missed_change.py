"""Stock horovodrun says once that a host has come, and rank 0 does not listen while its script builds a model."""

from collections.abc import Iterator

import pytest

from testbed.cluster import jobs
from testbed.cluster.site import Site
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from testbed.kube.node import Running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

BUILD_SECONDS = 20


@pytest.fixture
def spot(cluster: Site) -> Iterator[Running]:
    """One GPU of it is there at first."""
    node = cluster.local().nodes["spot"]
    node.set_gpus(cluster.kubectl, 1)
    yield node
    node.set_gpus(cluster.kubectl, node.node.gpus)


def test_a_worker_that_comes_while_the_model_is_built_is_used(
    cluster: Site, namespace: Kubectl, timeline: Timeline, spot: Running
) -> None:
    jobs.priority_classes(cluster)
    keys = {
        "node_labels": {"kubernetes.io/hostname": "spot"},
        "launcher": {"kind": "horovodrun", "cpu": "100m"},
        "workers": jobs.workers((1, 1, 2)),
    }
    command = [*jobs.PACED, f"--build={BUILD_SECONDS}"]
    job = jobs.submit(cluster, namespace, jobs.describe(cluster, namespace, "builds", command, **keys))
    namespace.wait("pod", "builds-worker-0", condition="Ready", within_seconds=120)
    waiting.until(
        "the first worker's process has begun",
        lambda: "trains" in namespace("logs", "builds-worker-0"),
        within_seconds=120,
        seen=job.describe,
    )
    spot.set_gpus(cluster.kubectl, 2)
    timeline.mark("another GPU")
    job.wait_size(2, within_seconds=240)
    assert "offered-anew" in job.log("discovery"), "the change was not missed, so nothing was shown"
    job.finish()
