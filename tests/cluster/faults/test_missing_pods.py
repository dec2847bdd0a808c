"""What `status` says of a worker that is not made again: a quota, a limit, an operator that is away."""

from signal import SIGKILL
from typing import Any

import pytest

from hvd_elastic.client.report.worker_status import WorkerPodState
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import FAULT_LAUNCHERS, SIZE, Scenario, nothing_lost
from tests.cluster.faults.reports import little_lost, until_status, worker
from tests.cluster.test_doctor import applied, limits, quota

pytestmark = [
    pytest.mark.timeout(420, func_only=True),
    pytest.mark.parametrize("standing", FAULT_LAUNCHERS, indirect=True),
]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        pytest.param(lambda kubectl: quota(kubectl, {"pods": "0"}), "exceeded quota: seeded", id="quota"),
        pytest.param(lambda kubectl: limits(kubectl, max={"cpu": "1m"}), "maximum cpu usage per Container", id="limit"),
    ],
)
def test_a_worker_that_may_not_be_made_says_why(cluster: Site, scenario: Scenario, refusal: Any, said: str) -> None:
    job, name = scenario.job, str(scenario.job.pods(Role.WORKER)[-1]["metadata"]["name"])
    try:
        with applied(scenario.kubectl, refusal(scenario.kubectl)):
            lost = scenario.timeline.mark(f"{name} is deleted")
            pods.delete(scenario.kubectl, name, by_force=True)
            _until_told(job, name, said)
            job.wait_size(SIZE - 1, since=lost)
    finally:
        back = scenario.timeline.mark("it may be made again")
        cluster.local().restart_mpi_operator()  # its pause before the next try doubles with each that failed
    job.wait_size(SIZE, since=back)
    little_lost(scenario.account)


def test_the_operator_is_away_while_gpus_come_and_go(cluster: Site, scenario: Scenario) -> None:
    machine, job = cluster.local(), scenario.job
    load = inference.deploy(cluster, scenario.kubectl)
    scenario.timeline.mark("the operator is killed")
    machine.daemon("mpi-operator").stop(with_signal=SIGKILL)
    try:
        load.scale(2)
        load.wait(2)
        job.wait_size(SIZE - 2)
        scenario.timeline.mark("given back")
        load.scale(0)
        said = "the operator has made nothing for"
        until_status(job, said, lambda status: sum(said in one["why"] for one in status["workers"]) == 2)
        job.wait_steps(20)
    finally:
        back = scenario.timeline.mark("the operator is back")
        machine.restart_mpi_operator()
    job.wait_size(SIZE, since=back)
    nothing_lost(scenario.account)


def _until_told(job: Job, name: str, said: str) -> None:
    def is_told(status: dict[str, Any]) -> bool:
        missing = worker(status, name)
        return missing["state"] == WorkerPodState.ABSENT and said in missing["why"]

    until_status(job, said, is_told, within_seconds=60)
