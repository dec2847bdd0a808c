"""What `status` says of a running job that somebody edits with kubectl, and that training goes on or comes back."""

import pytest

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, Role
from testbed.cluster import pods
from testbed.cluster.jobs import Job
from testbed.cluster.standing import FAULT_LAUNCHERS, SIZE, Scenario
from tests.cluster.faults.reports import little_lost, until_status, worker

pytestmark = [
    pytest.mark.timeout(420, func_only=True),
    pytest.mark.parametrize("standing", FAULT_LAUNCHERS, indirect=True),
]

FINALIZER = "test.hvd-elastic.dev/hold"


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        (SIZE + 2, f"asks for {SIZE + 2} workers: no more than {SIZE} train"),
        (0, "asks for 0 workers: the operator refuses that"),
    ],
)
def test_replicas_that_scale_would_not_set(scenario: Scenario, replicas: int, said: str) -> None:
    job = scenario.job
    edited = scenario.timeline.mark(f"replicas: {replicas}")
    _set_replicas(job, replicas)
    try:
        until_status(job, said, lambda status: any(said in note for note in status["notes"]))
        job.wait_steps(20)
        assert {step["size"] for step in job.account.since(edited).steps} == {SIZE}
    finally:
        back = scenario.timeline.mark(f"replicas: {SIZE}")
        _set_replicas(job, SIZE)
    until_status(job, "nothing is amiss", lambda status: not status["notes"])
    job.wait_size(SIZE, since=back)
    little_lost(scenario.account)


def test_a_pod_without_its_label(scenario: Scenario) -> None:
    job, name = scenario.job, _last_worker(scenario.job)
    edited = scenario.timeline.mark(f"{name} loses its label")
    scenario.kubectl("label", "pod", name, f"{LABEL_JOB_NAME}-")
    said = f"its pod has no label {LABEL_JOB_NAME} any more"
    until_status(job, said, lambda status: said in worker(status, name)["why"])
    job.wait_size(SIZE - 1, since=edited)
    back = scenario.timeline.mark(f"{name} gets it back")
    scenario.kubectl("label", "pod", name, f"{LABEL_JOB_NAME}={job.name}")
    job.wait_size(SIZE, since=back)
    little_lost(scenario.account)


def test_a_finalizer_that_holds_a_pod(scenario: Scenario) -> None:
    job, name = scenario.job, _last_worker(scenario.job)
    scenario.kubectl.patch("pod", name, {"metadata": {"finalizers": [FINALIZER]}})
    try:
        scenario.timeline.mark(f"{name} is deleted, and held")
        pods.delete(scenario.kubectl, name)
        said = f"its pod stays until its finalizers are removed: {FINALIZER}"
        until_status(job, said, lambda status: said in worker(status, name)["why"])
        job.wait_size(SIZE - 1)
    finally:
        back = scenario.timeline.mark("its finalizer is removed")
        scenario.kubectl.patch("pod", name, {"metadata": {"finalizers": None}})
    job.wait_size(SIZE, since=back)
    little_lost(scenario.account)


def _set_replicas(job: Job, replicas: int) -> None:
    job.kubectl.patch("mpijob", job.name, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": replicas}}}})


def _last_worker(job: Job) -> str:
    return str(job.pods(Role.WORKER)[-1]["metadata"]["name"])
