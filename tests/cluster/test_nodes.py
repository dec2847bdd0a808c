"""Nodes that are drained, that are cut off and come back, and that lack a little of what inference asks for."""

import signal
from datetime import UTC, datetime

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.faults
def test_spot_node_is_drained_and_comes_back(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    cluster.local()
    tainted = ("taint", "node", "spot", "test.hvd-elastic.dev/reclaimed=true:NoExecute")
    job = start(cluster, namespace, "launch", node_labels={}, workers=jobs.workers((1, 6, 6)))
    job.wait_size(6)
    timeline.mark("the spot node is tainted")
    cluster.kubectl(*tainted)
    try:
        job.wait_size(2)
        job.wait_steps(10)
    finally:
        back = timeline.mark("the taint is taken back")
        cluster.kubectl(*tainted[:3], "test.hvd-elastic.dev/reclaimed-")
    job.wait_size(6, since=back)
    job.finish()
    nothing_lost(job.account, ended=True)


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_node_lost_and_found(cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str) -> None:
    """Two of four workers are on the node. With `launch` rank 0 may be among them.

    Stock's driver tells rank 0 of every change of the hosts, holds its lock meanwhile, and stands still for as long as
    TCP tries to reach it, minutes: here its rank 0 is on the other node, for the first two workers can be nowhere else.
    """
    spot = cluster.local().nodes["spot"]
    first = 4 if launcher == "launch" else 2
    spot.set_gpus(cluster.kubectl, first - 2)
    workers = jobs.workers((1, first, 4))
    try:
        job = start(cluster, namespace, launcher, node_labels={}, workers=workers, capacity="on-demand")
        job.wait_size(first)
        spot.set_gpus(cluster.kubectl, 2)
        job.wait_size(4)
        cut = timeline.mark("the cable is pulled")
        spot.link.set(up=False)
        job.wait_size(2, since=cut)
        job.wait_steps(10)
    finally:
        back = timeline.mark("the cable is plugged in")
        spot.link.set(up=True)
        spot.set_gpus(cluster.kubectl, spot.node.gpus)
    cluster.kubectl.wait("node", "spot", condition="Ready", within_seconds=60)
    job.wait_size(4, since=back, within_seconds=180)
    job.finish()
    assert not job.account.skipped()


@pytest.mark.faults
@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_training_goes_on_while_no_kubelet_is_heard_of(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """As after an outage of the API server: the node controller takes Ready from every pod, and every worker trains."""
    machine = cluster.local()
    kubelets = [machine.daemon(f"{name}-kubelet") for name in machine.nodes]
    job = start(cluster, namespace, launcher, node_labels={}, workers=jobs.workers((1, 4, 4)))
    job.wait_size(4)

    def ready(state: str) -> bool:
        pods = job.pods(Role.WORKER)
        return len(pods) == 4 and all(condition_of(pod, "Ready") == state for pod in pods)

    silent = timeline.mark("the kubelets fall silent")
    for kubelet in kubelets:
        kubelet.pause()
    try:
        waiting.until("Ready is taken from all workers", lambda: ready("False"), within_seconds=120)
        timeline.mark("Ready is taken from all workers")
        job.wait_steps(100)
    finally:
        for kubelet in kubelets:
            kubelet.resume()
        timeline.mark("the kubelets go on")
    waiting.until("all workers are Ready again", lambda: ready("True"), within_seconds=60)
    job.wait_steps(100)
    assert {step["size"] for step in job.account.since(silent).steps} == {4}
    job.finish()
    nothing_lost(job.account, ended=True)


@pytest.mark.faults
@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_kubelets_that_start_anew_cost_no_world(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """Workers that answer go on. A new kubelet takes Ready from all pods until its own probe has succeeded (up to
    Kubernetes 1.34), or from those that had run for less than ten seconds (`kubeletRestartGracePeriod`)."""
    machine = cluster.local()
    job = start(cluster, namespace, launcher, node_labels={}, workers=jobs.workers((1, 4, 4)))
    job.wait_size(4)
    anew = timeline.mark("the kubelets start anew")
    said = datetime.now(UTC)
    for name in machine.nodes:
        kubelet = machine.daemon(f"{name}-kubelet")
        kubelet.stop(with_signal=signal.SIGKILL)
        kubelet.start()
    leases = cluster.kubectl.within("kube-node-lease")

    def have_spoken() -> bool:
        """Whether each kubelet has, since then, and all workers are Ready."""
        renewed = (leases.get("lease", name)["spec"]["renewTime"] for name in machine.nodes)
        ready = [condition_of(pod, "Ready") == "True" for pod in job.pods(Role.WORKER)]
        return all(datetime.fromisoformat(one) > said for one in renewed) and len(ready) == 4 and all(ready)

    waiting.until("the new kubelets call all workers Ready", have_spoken, within_seconds=120, seen=job.describe)
    job.wait_steps(50)
    assert {step["size"] for step in job.account.since(anew).steps} == {4}
    assert not [event for event in job.account.since(anew).events if event["event"] == "reset"]
    job.finish()
    nothing_lost(job.account, ended=True)


def test_workers_are_preempted_before_the_launcher(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    """Inference lacks a little CPU on a node where launcher and workers stand: it gets a worker's."""
    node = cluster.local().nodes["on-demand"]
    here = {"kubernetes.io/hostname": "on-demand"}
    node.set_gpus(cluster.kubectl, 4)
    try:
        job = start(cluster, namespace, "launch", node_labels=here, launcher_node_labels=here)
        job.wait_size(4)
        launcher = job.pods(Role.LAUNCHER)[0]["metadata"]["uid"]
        load = inference.deploy(cluster, namespace, node="on-demand", gpus=0, cpu=f"{_free_millicpu(cluster) + 50}m")
        load.scale(1)
        load.wait(1)
        job.wait_size(3)
        assert job.pods(Role.LAUNCHER)[0]["metadata"]["uid"] == launcher
        victims = {seen.pod for seen in timeline.pods if seen.disrupted}
        assert len(victims) == 1
        assert "worker" in victims.pop()
        job.finish()
    finally:
        node.set_gpus(cluster.kubectl, node.node.gpus)


def _free_millicpu(site: Site) -> int:
    """What the on-demand node still has, by the requests of its pods."""
    node = site.kubectl.get("node", "on-demand")
    free = 1000 * int(node["status"]["allocatable"]["cpu"])
    for pod in site.kubectl.list("pods", everywhere=True):
        if pod["spec"].get("nodeName") == "on-demand" and pod["status"]["phase"] == "Running":
            every = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
            free -= sum(int(each["resources"].get("requests", {}).get("cpu", "0m").removesuffix("m")) for each in every)
    return free
