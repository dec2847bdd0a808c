"""What a cluster does to a running job: it takes and gives hosts, and it kills. Training goes on.

All scenarios of a launcher disturb one standing job.
"""

import contextlib
import random
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, pods
from testbed.cluster.faults import kill_training
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, LAUNCHERS, SIZE, Scenario, nothing_lost
from testbed.kube import waiting
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_down_to_one_worker(cluster: Site, scenario: Scenario) -> None:
    load = inference.deploy(cluster, scenario.kubectl, gpus=3)
    scenario.timeline.mark("three GPUs for inference")
    load.scale(1)
    scenario.job.wait_size(1)
    load.wait(1)
    scenario.job.wait_steps(10)
    back = scenario.timeline.mark("given back")
    load.scale(0)
    scenario.job.wait_size(SIZE, since=back)
    nothing_lost(scenario.account)


@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_ten_resizes_in_a_row(cluster: Site, scenario: Scenario) -> None:
    """At times that a seed decides, whether the last resize was over or not."""
    seed = 20_240_613
    chance = random.Random(seed)
    load = inference.deploy(cluster, scenario.kubectl)
    for _ in range(10):
        count = chance.randint(0, 3)
        scenario.timeline.mark(f"inference -> {count}")
        load.scale(count)
        scenario.job.wait_steps(chance.randint(5, 60))
    back = scenario.timeline.mark("inference -> 0")
    load.scale(0)
    scenario.job.wait_size(SIZE, since=back)
    nothing_lost(scenario.account)


@pytest.mark.parametrize("standing", BOTH_LAUNCHERS, indirect=True)
def test_a_burst_takes_every_worker(cluster: Site, scenario: Scenario) -> None:
    """Nobody is left who has the state in memory: the last one made it durable before it left."""
    _take_every_worker(cluster, scenario, times=1)


@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_ten_bursts_in_a_row_spend_no_restart(cluster: Site, scenario: Scenario) -> None:
    _take_every_worker(cluster, scenario, times=10)


def _take_every_worker(cluster: Site, scenario: Scenario, *, times: int) -> None:
    """Inference takes every GPU and gives it back. The launcher stays, and no step is lost."""
    job = scenario.job
    launcher = _launcher(job)
    load = inference.deploy(cluster, scenario.kubectl, gpus=SIZE)
    for _ in range(times):
        scenario.timeline.mark("every GPU for inference")
        load.scale(1)
        load.wait(1)
        done = scenario.account.steps[-1]["step"]
        back = scenario.timeline.mark("given back")
        load.scale(0)
        job.wait_size(SIZE, since=back)
        again = job.account.since(back).steps[0]["step"]
        assert again == done + 1, f"step {done} was the last before the burst, {again} the first after it"
    assert not scenario.account.skipped()
    assert _launcher(job) == launcher, "a take-over has spent a restart"


@pytest.mark.core
@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_a_claim_of_another_namespace(cluster: Site, namespace: Kubectl, scenario: Scenario) -> None:
    """Two GPUs are another team's: its inference takes them from this job, 4 -> 2 -> 4, and progress only grows."""
    load = inference.deploy(cluster, namespace)
    load.scale(2)
    scenario.job.wait_size(2)
    load.wait(2)
    back = scenario.timeline.mark("the claim ends")
    load.scale(0)
    scenario.job.wait_size(SIZE, since=back)
    nothing_lost(scenario.account)


@pytest.mark.parametrize("standing", BOTH_LAUNCHERS, indirect=True)
def test_worker_process_killed(scenario: Scenario) -> None:
    killed = scenario.timeline.mark("kill -9")
    assert kill_training(scenario.job, scenario.job.pods(Role.WORKER)[1]["metadata"]["name"])
    scenario.job.wait_smaller(SIZE, since=killed)
    scenario.job.wait_size(SIZE, since=killed)
    assert not scenario.account.skipped()


@pytest.mark.core
@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_worker_evicted_is_replaced(scenario: Scenario) -> None:
    """A pod that the kubelet evicts stays Failed, and the operator never makes it again: discovery deletes it."""
    victim = scenario.job.pods(Role.WORKER)[2]["metadata"]
    evicted = scenario.timeline.mark("evicted")
    failed = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}}

    def made_again() -> bool:
        pod = scenario.kubectl.find("pod", victim["name"])
        if pod and pod["metadata"]["uid"] == victim["uid"]:
            # The kubelet, which has evicted nobody, may put its own word over ours before it has read it.
            with contextlib.suppress(ClusterError):  # deleted meanwhile
                scenario.kubectl.patch("pod", victim["name"], failed, subresource="status")
        return pod is not None and _is_heir(pod["metadata"], victim)

    waiting.until("the pod is made again", made_again, within_seconds=60, every_seconds=1, seen=scenario.job.describe)
    scenario.job.wait_size(SIZE, since=evicted)
    assert not scenario.account.skipped()


@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_worker_replaced_under_its_name(scenario: Scenario) -> None:
    """A pod that is deleted without grace is back under its name within a second, at another address or the same."""
    gone = scenario.timeline.mark("deleted without grace")
    name = scenario.job.pods(Role.WORKER)[1]["metadata"]["name"]
    pods.delete(scenario.kubectl, name, by_force=True)
    scenario.job.wait_smaller(SIZE, since=gone)
    scenario.job.wait_size(SIZE, since=gone)
    assert not scenario.account.skipped()


@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_newcomer_killed_while_joining(cluster: Site, scenario: Scenario) -> None:
    job = scenario.job
    load = inference.deploy(cluster, scenario.kubectl)
    load.scale(1)
    load.wait(1)
    job.wait_size(SIZE - 1)
    before = {pod["metadata"]["uid"] for pod in job.pods(Role.WORKER) if condition_of(pod, "Ready") == "True"}
    back = scenario.timeline.mark("a GPU is given back")
    load.scale(0)
    name = waiting.until("the newcomer runs", lambda: _newcomer(job, before), within_seconds=60, every_seconds=0.05)
    scenario.timeline.mark("the newcomer is killed")
    assert kill_training(job, name)
    job.wait_size(SIZE, since=back)
    assert not scenario.account.skipped()


@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_api_server_restarts_in_the_middle_of_a_preemption(cluster: Site, scenario: Scenario) -> None:
    machine, job = cluster.local(), scenario.job
    load = inference.deploy(cluster, scenario.kubectl)
    scenario.timeline.mark("inference 0 -> 2, API server killed")
    load.scale(2)
    machine.restart_api_server(away_seconds=3)
    job.wait_size(2)
    load.wait(2)
    back = scenario.timeline.mark("inference 2 -> 0, API server killed")
    load.scale(0)
    machine.restart_api_server(away_seconds=3)
    job.wait_size(SIZE, since=back)
    nothing_lost(scenario.account)


@pytest.mark.parametrize("standing", BOTH_LAUNCHERS, indirect=True)
def test_launcher_lost(scenario: Scenario) -> None:
    """Its Job makes it again, and training goes on from the durable checkpoint."""
    job, durable = scenario.job, scenario.job.shared / "checkpoints"
    waiting.until("a checkpoint is durable", lambda: any(durable.rglob("manifests/*.json")), within_seconds=60)
    job.wait_steps(20)
    gone = scenario.timeline.mark("launcher deleted without grace")
    # A launcher that another test has ended may still be there.
    lost = next(pod["metadata"] for pod in job.pods(Role.LAUNCHER) if _runs(pod))
    pods.delete(scenario.kubectl, lost["name"], by_force=True)
    waiting.until(
        "another launcher runs",
        lambda: [pod for pod in job.pods(Role.LAUNCHER) if pod["metadata"]["uid"] != lost["uid"] and _runs(pod)],
        within_seconds=60,
        seen=job.describe,
    )
    back = scenario.timeline.mark("another launcher runs")
    job.wait_size(SIZE, since=back)
    job.wait_steps(10)
    assert min(step["step"] for step in job.account.since(gone).steps) > 1, "it began anew"
    # Of the whole job: it may have gone back to before this test, and not yet be where that began.
    assert not job.account.skipped()


def _launcher(job: Job) -> str:
    """UID of the launcher's pod that runs."""
    return next(str(pod["metadata"]["uid"]) for pod in job.pods(Role.LAUNCHER) if _runs(pod))


def _runs(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _is_heir(pod: dict[str, str], victim: dict[str, str]) -> bool:
    return pod["name"] == victim["name"] and pod["uid"] != victim["uid"]


def _newcomer(job: Job, before: set[str]) -> str | None:
    for pod in job.pods(Role.WORKER):
        statuses = pod["status"].get("containerStatuses") or [{}]
        if pod["metadata"]["uid"] not in before and statuses[0].get("ready"):
            return str(pod["metadata"]["name"])
    return None
