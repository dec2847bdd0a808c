"""What goes wrong around a job in its namespace: rights and classes that go, strangers, another job."""

from dataclasses import replace

import pytest

from hvd_elastic.mpijob.contract import ENV_EVENTS, Role
from testbed.cluster import inference, jobs, pods
from testbed.cluster.faults import end_sidecar, kill_training
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, LAUNCHERS, SIZE, Scenario, nothing_lost
from testbed.kube import store, waiting
from tests.cluster.faults.removed_objects import removed
from tests.cluster.faults.reports import little_lost, until_status, worker
from tests.cluster.test_operating import call, told

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(420, func_only=True),
    pytest.mark.parametrize("standing", LAUNCHERS, indirect=True),
]


def test_the_role_of_discovery_is_gone(cluster: Site, scenario: Scenario) -> None:
    """Its watches live on without it; a sidecar that starts anew meanwhile may see nothing at all."""
    job = scenario.job
    load = inference.deploy(cluster, scenario.kubectl)
    with removed(scenario.kubectl, "role", f"{job.name}-discovery"):
        scenario.timeline.mark("the Role is gone")
        assert end_sidecar(job, _launcher(job))
        load.scale(2)
        load.wait(2)
        job.wait_size(SIZE - 2)
        job.wait_steps(20)
        said = "forbidden"
        waiting.until("the sidecar says why", lambda: said in job.log("discovery"), within_seconds=60)
    back = scenario.timeline.mark("the Role is back")
    load.scale(0)
    job.wait_size(SIZE, since=back, within_seconds=180)
    until_status(job, "status knows it", lambda status: status["size"] == SIZE)
    little_lost(scenario.account)


def test_the_class_of_the_workers_is_deleted(cluster: Site, scenario: Scenario) -> None:
    """Pods that are there keep their priority; new ones are refused."""
    job, name = scenario.job, _last_worker(scenario.job)
    try:
        with removed(cluster.kubectl, "priorityclass", "preemptible-pc"):
            lost = scenario.timeline.mark(f"the class is deleted, and {name}")
            pods.delete(scenario.kubectl, name, by_force=True)
            job.wait_size(SIZE - 1, since=lost)
            said = "no PriorityClass with name preemptible-pc was found"
            until_status(job, said, lambda status: said in worker(status, name).get("why", ""))
            job.wait_steps(20)
    finally:
        back = scenario.timeline.mark("the class is back")
        cluster.local().restart_mpi_operator()  # its pause before the next try doubles with each that failed
    job.wait_size(SIZE, since=back)
    little_lost(scenario.account)


def test_a_stranger_with_the_labels_of_a_worker(cluster: Site, scenario: Scenario) -> None:
    """It runs and is Ready, and no MPIJob owns it."""
    job, name, victim = scenario.job, f"{scenario.job.name}-worker-impostor", _last_worker(scenario.job)
    stranger = pods.pod(name, image=store.PAUSE_IMAGE, selector={"kubernetes.io/hostname": "on-demand"})
    stranger["metadata"]["labels"] = job.pods(Role.WORKER)[0]["metadata"]["labels"]
    scenario.timeline.mark("a stranger has the job's labels")
    scenario.kubectl.apply([stranger])
    try:
        pods.wait_ready(scenario.kubectl, name)
        verdicts = call(scenario.kubectl, "discover", "--job", job.name).splitlines()
        assert any(name in line and "not-ours" in line for line in verdicts), verdicts
        killed = scenario.timeline.mark("a worker's process is killed")
        assert kill_training(job, victim)
        job.wait_smaller(SIZE, since=killed)
        job.wait_size(SIZE, since=killed)
        assert max(job.account.since(killed).sizes) == SIZE
        assert not worker(told(scenario.kubectl, "status", job.name), name)
    finally:
        pods.delete(scenario.kubectl, name, by_force=True)
    little_lost(scenario.account)


def test_a_stranger_has_the_name_of_a_worker(cluster: Site, scenario: Scenario) -> None:
    """Made while the operator looks away: it makes no pod that it would have to take from somebody.

    It says so in an Event, if it has not written too many of this job already: client-go lets 25 of one object through.
    """
    job, name = scenario.job, _last_worker(scenario.job)
    operator = cluster.local().daemon("mpi-operator")
    stranger = pods.pod(name, image=store.PAUSE_IMAGE, selector={"kubernetes.io/hostname": "on-demand"})
    operator.pause()
    try:
        lost = scenario.timeline.mark(f"{name} is a stranger's")
        pods.delete(scenario.kubectl, name, by_force=True)
        waiting.until("it is gone", lambda: not scenario.kubectl.find("pod", name), within_seconds=30)
        scenario.kubectl.apply([stranger])
        operator.resume()
        job.wait_size(SIZE - 1, since=lost)
        said = ("already exists and is not managed by MPIJob", "the operator has made nothing for")
        until_status(job, said[0], lambda status: any(words in worker(status, name).get("why", "") for words in said))
        job.wait_steps(20)
    finally:
        back = scenario.timeline.mark("the stranger goes")
        pods.delete(scenario.kubectl, name, by_force=True)
        cluster.local().restart_mpi_operator()
    job.wait_size(SIZE, since=back)
    little_lost(scenario.account)


def test_the_launcher_is_deleted_while_every_gpu_goes(cluster: Site, scenario: Scenario) -> None:
    """Nobody is left who has the state, and nobody who would start those that come."""
    job = scenario.job
    load = inference.deploy(cluster, scenario.kubectl, gpus=SIZE)
    scenario.timeline.mark("every GPU for inference, and the launcher is deleted")
    load.scale(1)
    pods.delete(scenario.kubectl, _launcher(job), by_force=True)
    load.wait(1)
    until_status(job, "nobody trains", lambda status: status["state"] in {"waiting", "starting"} and not status["size"])
    back = scenario.timeline.mark("given back")
    load.scale(0)
    job.wait_size(SIZE, since=back, within_seconds=240)
    job.wait_steps(10)
    little_lost(scenario.account)


def test_two_jobs_share_a_node(cluster: Site, scenario: Scenario) -> None:
    """Of one namespace, one class and one folder of results: neither gets a worker or a file of the other's."""
    job, kubectl = scenario.job, scenario.kubectl
    folder = job.shared / "guest"
    description = jobs.describe(
        cluster,
        kubectl,
        "guest",
        [*jobs.PACED, "--stop=/output/guest/stop"],
        workers=jobs.workers((1, 2, 2)),
        launcher={"kind": scenario.launcher, "cpu": "100m"},
        node_labels={"kubernetes.io/hostname": "spot"},
        env={ENV_EVENTS: "/output/guest/events"},
        checkpoint=DURABLE,
    )
    try:
        call(kubectl, "scale", job.name, "2")
        job.wait_size(2)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        guest = replace(jobs.submit(cluster, kubectl, description, shared=job.shared), shared=folder)
        guest.wait_size(2)
        load = inference.deploy(cluster, kubectl)
        scenario.timeline.mark("inference takes two of four GPUs")
        load.scale(2)
        load.wait(2)
        job.wait_steps(20)
        back = scenario.timeline.mark("given back")
        load.scale(0)
        for one in (job, guest):
            one.wait_size(2, since=back)
        guest.finish()
        nothing_lost(guest.account, ended=True)
    finally:
        kubectl("delete", "mpijob", "guest", "--ignore-not-found")
        back = scenario.timeline.mark("the other job has ended")
        call(kubectl, "scale", job.name, str(SIZE))
    job.wait_size(SIZE, since=back)
    nothing_lost(scenario.account)


def _last_worker(job: Job) -> str:
    return str(job.pods(Role.WORKER)[-1]["metadata"]["name"])


def _launcher(job: Job) -> str:
    """The launcher's pod that runs; training may begin before the kubelet says that it does."""

    def running() -> str | None:
        found = (pod for pod in job.pods(Role.LAUNCHER) if pod["status"]["phase"] == "Running")
        return next((str(pod["metadata"]["name"]) for pod in found), None)

    return waiting.until("a launcher runs", running, within_seconds=30, seen=job.describe)
