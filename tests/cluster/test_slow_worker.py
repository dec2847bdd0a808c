"""A worker that has less of a CPU than the others: it is named, and replaced where the job asks for that."""

from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.discovery.kube.node_exclusion import excluded_nodes, excluding
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.setup.platform_kit import slow_nodes
from testbed.cluster import jobs, standing
from testbed.cluster.pod_cgroups import throttled
from testbed.cluster.site import Site
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl
from tests.cluster.faults.reports import until_events, until_status

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

BUSY = [*jobs.PACED, "--busy", "0.02"]
"""It computes; one that sleeps for most of a step is as fast with a tenth of a CPU."""
WITHOUT_GPUS = jobs.workers((1, standing.SIZE, standing.SIZE), gpus=0)
"""Who is slow on a GPU is not known yet."""


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({}, id="report", marks=pytest.mark.core),
        pytest.param({"engine": "torch"}, id="report-torch"),
        pytest.param({"slow_workers": "replace", "workers": WITHOUT_GPUS}, id="replace"),
    ],
)
def test_a_worker_with_a_tenth_of_a_cpu(
    cluster: Site, namespace: Kubectl, timeline: Timeline, keys: dict[str, Any]
) -> None:
    cluster.local()
    job = standing.start(cluster, namespace, "launch", command=BUSY, **keys)
    job.wait_size(standing.SIZE)
    job.wait_steps(50)
    pod = job.pods(Role.WORKER)[-1]["metadata"]
    timeline.mark("a worker has a tenth of a CPU")
    timeline.slow.add(pod["name"])
    with throttled(pod["uid"], cpus=0.1):
        until_status(job, "it is named", lambda status: [one["pod"] for one in status["slow"]] == [pod["name"]])
        until_events(job, pod["name"], "times as long as the others", "computing")
        if keys.get("slow_workers") == "replace":
            until_events(job, pod["name"], "replaced", within_seconds=400)
    timeline.mark("all have what they want")
    if keys.get("slow_workers") == "replace":
        job.wait_size(standing.SIZE, since=timeline.mark("another worker comes"))
        assert job.pods(Role.WORKER)[-1]["metadata"]["uid"] != pod["uid"]
    until_status(job, "nobody is slow", lambda status: status["slow"] == [], within_seconds=300)
    job.finish()
    standing.nothing_lost(job.account, ended=True)


@pytest.fixture
def exclusion(cluster: Site, namespace: Kubectl) -> Iterator[None]:
    """What keeps successors off slow nodes, as the platform kit has it."""
    made = slow_nodes.manifests(image=cluster.image, namespace=namespace.namespace)
    cluster.kubectl.apply(made)
    try:
        namespace.wait("deployment", slow_nodes.NAME, condition="Available", within_seconds=150)
        yield
    finally:
        for one in made:
            if "namespace" not in one["metadata"]:
                cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


@pytest.mark.usefixtures("exclusion")
def test_the_successor_comes_to_another_node(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    """By the kit's account. No other worker notices."""
    cluster.local()
    keys: dict[str, Any] = {"workers": WITHOUT_GPUS, "slow_workers": "replace", "node_labels": {}}
    job = standing.start(cluster, namespace, "launch", command=BUSY, **keys)
    job.wait_size(standing.SIZE)
    job.wait_steps(50)
    before = template(namespace, job.name)
    *others, slow = job.pods(Role.WORKER)
    name, node = slow["metadata"]["name"], slow["spec"]["nodeName"]
    timeline.mark(f"a worker on {node} has a tenth of a CPU")
    timeline.slow.add(name)
    with throttled(slow["metadata"]["uid"], cpus=0.1):
        until_status(job, "its node is excluded", lambda status: kept_off(status, node), within_seconds=330)
        until_events(job, name, "replaced", within_seconds=300)
    assert any(f"its successor keeps off {node}: deleted" in event["message"] for event in jobs.events(namespace))
    job.wait_size(standing.SIZE, since=timeline.mark("another worker comes"))
    *still, successor = job.pods(Role.WORKER)
    assert successor["metadata"]["name"] == name
    assert successor["spec"]["nodeName"] != node
    assert [one["metadata"]["uid"] for one in still] == [one["metadata"]["uid"] for one in others]
    assert list(excluded_nodes(namespace.get("mpijob", job.name))) == [node]
    assert template(namespace, job.name) == {**before, "affinity": excluding(before.get("affinity") or {}, [node])}
    job.finish()
    standing.nothing_lost(job.account, ended=True)


def template(namespace: Kubectl, job: str) -> dict[str, Any]:
    """The spec of which its workers are made."""
    found: dict[str, Any] = namespace.get("mpijob", job)["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    return found


def kept_off(status: dict[str, Any], node: str) -> bool:
    return any(note.startswith(f"new workers keep off {node} until") for note in status["notes"])
