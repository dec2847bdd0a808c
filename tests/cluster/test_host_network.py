"""Workers in their nodes' own network, where each has the address of the one before it, and two jobs share a node."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs, pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import RESULTS, Site
from testbed.cluster.standing import BOTH_LAUNCHERS, DURABLE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import network, waiting
from testbed.kube.kubectl import Kubectl, condition_of
from tests.cluster.test_operating import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(540, func_only=True)]

ON_NODES: Final[dict[str, Any]] = {"spec": {"hostNetwork": True}}
PORTS: Final[dict[str, Any]] = {"network": {"host_port": 21_000}}
SPOT: Final = {"kubernetes.io/hostname": "spot"}


@pytest.fixture
def on_nodes(cluster: Site, namespace: Kubectl) -> Iterator[Kubectl]:
    """A namespace that admits `hostNetwork`, and one GPU on each node: what inference takes is a worker's."""
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    for node in cluster.local().nodes.values():
        node.set_gpus(cluster.kubectl, 1)
    yield namespace
    for node in cluster.local().nodes.values():
        node.set_gpus(cluster.kubectl, node.node.gpus)


def start_on_nodes(cluster: Site, namespace: Kubectl, launcher: str, **keys: Any) -> Job:
    """A job with a worker on each of the two nodes."""
    return start(cluster, namespace, launcher, node_labels={}, workers=jobs.workers((1, 2, 2), pod=ON_NODES), **keys)


def uids(job: Job) -> dict[str, str]:
    """By address, the worker that is there and does not leave."""
    there = [pod for pod in job.pods(Role.WORKER) if "deletionTimestamp" not in pod["metadata"]]
    return {address: pod["metadata"]["uid"] for pod in there if (address := pod["status"].get("podIP"))}


def has_another(job: Job, before: dict[str, str]) -> bool:
    now = uids(job)
    return now.keys() == before.keys() and now != before


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_it_trains_gives_a_node_to_inference_and_comes_back_to_it(
    cluster: Site, on_nodes: Kubectl, timeline: Timeline, launcher: str
) -> None:
    job = start_on_nodes(cluster, on_nodes, launcher)
    load = inference.deploy(cluster, on_nodes)
    job.wait_size(2)
    first = uids(job)
    assert set(first) == {node.address for node in cluster.local().nodes.values()}
    seen = in_worker(job, "cat /etc/resolv.conf; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert f"nameserver {cluster.local().plane.subnets.dns_service}" in seen
    assert f"HOROVOD_GLOO_IFACE={network.UPLINK}" in seen

    timeline.mark("inference takes the spot node's GPU")
    load.scale(1)
    load.wait(1)
    job.wait_size(1)
    job.wait_steps(10)

    back = timeline.mark("and gives it back")
    load.scale(0)
    job.wait_size(2, since=back)
    job.wait_steps(10)
    now, spot = uids(job), cluster.local().nodes["spot"].address
    assert set(now) == set(first)
    assert now[spot] != first[spot], "another worker of the same address"
    nothing_lost(job.account)


def test_a_worker_whose_predecessor_still_runs_is_told_from_it(
    cluster: Site, on_nodes: Kubectl, timeline: Timeline
) -> None:
    """One that is taken away by force goes on for a moment, at the address and the ports of its successor."""
    job = start_on_nodes(cluster, on_nodes, "launch", checkpoint=DURABLE)
    job.wait_size(2)
    for victim in (0, 1, 0):
        before = uids(job)
        since = timeline.mark(f"worker {victim} by force")
        pods.delete(on_nodes, job.pods(Role.WORKER)[victim]["metadata"]["name"], by_force=True)
        waiting.until("another worker", partial(has_another, job, before), within_seconds=90)
        job.wait_size(2, since=since)
        job.wait_steps(5)
    assert job.account.skipped() == []


def test_two_jobs_share_a_node_and_a_third_with_the_ports_of_one_waits(
    cluster: Site, on_nodes: Kubectl, timeline: Timeline
) -> None:
    cluster.local().nodes["spot"].set_gpus(cluster.kubectl, 3)
    jobs.priority_classes(cluster)
    shared = jobs.share_results(cluster, on_nodes)
    described = [
        jobs.describe(
            cluster,
            on_nodes,
            name,
            jobs.PACED,
            node_labels=SPOT,
            workers=jobs.workers((1, 1, 1), pod=ON_NODES),
            output={"claim": RESULTS},
            **keys,
        )
        for name, keys in (("one", PORTS), ("two", {}), ("three", PORTS))
    ]
    first = jobs.submit(cluster, on_nodes, described[0], shared=shared)
    first.wait_size(1)
    timeline.mark("one trains")
    on_nodes.apply(jobs.generate(described[1]))
    second = Job(kubectl=on_nodes, name="two", shared=shared)
    waiting.until("both have a worker that is Ready", lambda: ready(first) and ready(second), within_seconds=120)
    assert uids(first).keys() == uids(second).keys(), "one node"

    told = run(on_nodes, "generate", "-", given=json.dumps(described[2]))
    assert "ports 21000 to 21002 of its node" in told.stderr
    on_nodes.apply(told.stdout)
    third = Job(kubectl=on_nodes, name="three", shared=shared)
    waiting.until("the scheduler names the ports", lambda: "free ports" in unscheduled(third), within_seconds=60)
    first.wait_steps(5)


def ready(job: Job) -> bool:
    return [condition_of(pod, "Ready") for pod in job.pods(Role.WORKER)] == ["True"]


def unscheduled(job: Job) -> str:
    conditions = [each for pod in job.pods(Role.WORKER) for each in pod["status"].get("conditions", ())]
    return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")


def in_worker(job: Job, script: str) -> str:
    name = job.pods(Role.WORKER)[0]["metadata"]["name"]
    return job.kubectl("exec", name, "-c", "worker", "--", "sh", "-c", script)


CAPABILITIES: Final = "grep -E '^Cap(Eff|Bnd)' /proc/self/status"
IPC_LOCK: Final = 1 << 14
"""capabilities(7); `CAP_IPC_LOCK` in linux/capability.h."""


def test_an_added_capability_has_no_effect_for_who_is_not_root(cluster: Site, on_nodes: Kubectl) -> None:
    """Why IPC_LOCK is refused (kubernetes#56374). If it fails, Kubernetes gives it, and the refusal may go."""
    one = pods.pod("locks", image=cluster.image, command=["sleep", "600"], selector={})
    (container,) = one["spec"]["containers"]
    container["securityContext"] = {**pods.SAFE, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}
    on_nodes.apply([one])
    pods.wait_ready(on_nodes, "locks")
    lines = on_nodes("exec", "locks", "--", "sh", "-c", CAPABILITIES).splitlines()
    effective, bounding = (int(line.split()[1], 16) for line in sorted(lines, reverse=True))
    assert bounding & IPC_LOCK
    assert not effective & IPC_LOCK
