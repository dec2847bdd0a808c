"""Nodes that only say that they run their pods, for scenarios of more nodes than this machine has."""

from collections.abc import Iterator

import pytest

from testbed.cluster import pods
from testbed.cluster.site import Site
from testbed.kube import kwok as fake_nodes
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

NODES = 3


@pytest.fixture
def kwok(cluster: Site) -> Iterator[None]:
    """Three nodes of kwok's, for one test."""
    machine = cluster.local()
    fake_nodes.start(machine.plane, cluster.kubectl, nodes=NODES)
    yield
    fake_nodes.stop(machine.plane, cluster.kubectl)


@pytest.mark.usefixtures("kwok")
@pytest.mark.core
def test_pods_on_kwok_nodes_say_that_they_run_and_go_when_they_are_deleted(namespace: Kubectl) -> None:
    names = [f"fake-{index}" for index in range(2 * NODES)]
    namespace.apply(
        [
            pods.pod(name, image="registry.invalid/none:1", command=["none"], selector=fake_nodes.LABELS)
            for name in names
        ]
    )
    for name in names:
        pods.wait_ready(namespace, name)
    assert {pod["status"]["phase"] for pod in namespace.list("pods")} == {"Running"}
    namespace("delete", "pods", "--all", "--wait=false")
    waiting.until("the pods are gone", lambda: not namespace.list("pods"), within_seconds=60)
