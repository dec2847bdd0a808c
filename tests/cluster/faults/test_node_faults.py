"""What befalls the nodes under a job: they are drained, or may not be, their runtime restarts, their CPU is short."""

import signal

import pytest

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, Role
from testbed.cluster import inference, pods
from testbed.cluster.jobs import Job
from testbed.cluster.pod_cgroups import throttled
from testbed.cluster.site import Site
from testbed.cluster.standing import LAUNCHERS, SIZE, Scenario, nothing_lost
from testbed.kube import store, waiting
from tests.cluster.faults.reports import little_lost, until_status
from tests.cluster.incidents import is_evicted

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(420, func_only=True),
    pytest.mark.parametrize("standing", LAUNCHERS, indirect=True),
]


def test_the_node_of_the_workers_is_drained(cluster: Site, scenario: Scenario) -> None:
    """The last of its workers stores the state before it leaves; the launcher stands elsewhere and waits."""
    job, launcher = scenario.job, _launcher(scenario.job)
    scenario.timeline.mark("the spot node is drained")
    try:
        _drain(cluster, job, "spot")
        until_status(job, "nobody trains", lambda status: status["state"] == "waiting")
        done = scenario.account.steps[-1]["step"]
    finally:
        back = scenario.timeline.mark("pods may go there again")
        cluster.kubectl("uncordon", "spot")
    job.wait_size(SIZE, since=back)
    assert job.account.since(back).steps[0]["step"] == done + 1
    assert _launcher(job) == launcher, "the drain has spent a restart"
    nothing_lost(scenario.account)


def test_the_node_of_the_launcher_is_drained(cluster: Site, scenario: Scenario) -> None:
    """It is the only one that the launcher may stand on, and takes no other until pods may go there again."""
    job, launcher = scenario.job, _launcher(scenario.job)
    scenario.timeline.mark("the on-demand node is drained")
    try:
        _drain(cluster, job, "on-demand")
        until_status(job, "its launcher has no node", lambda status: "its launcher is pending: " in status["why"])
    finally:
        back = scenario.timeline.mark("pods may go there again")
        cluster.kubectl("uncordon", "on-demand")
    job.wait_size(SIZE, since=back, within_seconds=240)
    assert _launcher(job) != launcher
    little_lost(scenario.account)


def test_a_disruption_budget_is_in_the_way(cluster: Site, scenario: Scenario) -> None:
    """It refuses evictions. The scheduler honours it as long as it can, and here no other pods would do."""
    job, kubectl = scenario.job, scenario.kubectl
    labels = {LABEL_JOB_NAME: job.name, LABEL_JOB_ROLE: Role.WORKER}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "none", "namespace": kubectl.namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }
    load = inference.deploy(cluster, kubectl)
    scenario.timeline.mark("no worker may be disrupted")
    kubectl.apply([budget])
    try:
        assert not is_evicted(job, job.pods(Role.WORKER)[0]["metadata"]["name"])
        scenario.timeline.mark("two GPUs for inference")
        load.scale(2)
        load.wait(2)
        job.wait_size(SIZE - 2)
        back = scenario.timeline.mark("given back")
        load.scale(0)
        job.wait_size(SIZE, since=back)
    finally:
        kubectl("delete", "poddisruptionbudget", "none")
    nothing_lost(scenario.account)


def test_containerd_restarts(cluster: Site, scenario: Scenario) -> None:
    """Containers live on under their shims, and no world is lost; then pods can be made again."""
    job, spot = scenario.job, cluster.local().nodes["spot"]
    containerd = cluster.local().daemon("spot-containerd")
    anew = scenario.timeline.mark("containerd is killed, and starts anew")
    containerd.stop(with_signal=signal.SIGKILL)
    job.wait_steps(20)
    containerd.start()
    store.wait_answers(spot.socket, containerd)
    job.wait_steps(100)
    assert {step["size"] for step in job.account.since(anew).steps} == {SIZE}
    assert not [event for event in job.account.since(anew).events if event["event"] == "reset"]
    nothing_lost(scenario.account)
    lost = scenario.timeline.mark("a worker is deleted")
    pods.delete(scenario.kubectl, str(job.pods(Role.WORKER)[-1]["metadata"]["name"]))
    job.wait_smaller(SIZE, since=lost)
    job.wait_size(SIZE, since=lost)
    nothing_lost(scenario.account)


def test_a_worker_is_throttled(cluster: Site, scenario: Scenario) -> None:
    """All of them are as slow as it is; none takes it for dead."""
    cluster.local()
    job = scenario.job
    scenario.timeline.mark("a worker has a tenth of a CPU")
    with throttled(job.pods(Role.WORKER)[-1]["metadata"]["uid"], cpus=0.1):
        job.wait_steps(100, within_seconds=180)
    back = scenario.timeline.mark("it has all that it wants")
    job.wait_size(SIZE, since=back)
    job.wait_steps(20)
    nothing_lost(scenario.account)


def _drain(cluster: Site, job: Job, node: str) -> None:
    """As an administrator does it, but for the pods of everybody else; it is done when they are gone."""
    options = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
    cluster.kubectl("drain", node, *options, f"--pod-selector={LABEL_JOB_NAME}={job.name}", within_seconds=120)


def _launcher(job: Job) -> str:
    """UID of the launcher's pod that runs; training may begin before the kubelet says that it does."""

    def running() -> str | None:
        found = (pod for pod in job.pods(Role.LAUNCHER) if pod["status"]["phase"] == "Running")
        return next((str(pod["metadata"]["uid"]) for pod in found), None)

    return waiting.until("a launcher runs", running, within_seconds=30, seen=job.describe)
