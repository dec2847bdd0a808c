"""What `status` says of a worker that is not made again: a quota, a limit, an operator that is away."""

from signal import SIGKILL
from typing import Any

import pytest

from hvd_elastic.client.report.worker_status import WorkerPodState
from hvd_elastic.mpijob.contract import Role
from testbed.cluster import pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import SIZE, Scenario
from testbed.kube import waiting
from tests.cluster.test_doctor import applied, limits, quota
from tests.cluster.test_operating import told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        pytest.param(lambda kubectl: quota(kubectl, {"pods": "0"}), "exceeded quota: seeded", id="quota"),
        pytest.param(lambda kubectl: limits(kubectl, max={"cpu": "1m"}), "maximum cpu usage per Container", id="limit"),
    ],
)
@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_a_worker_that_may_not_be_made_says_why(cluster: Site, scenario: Scenario, refusal: Any, said: str) -> None:
    try:
        with applied(scenario.kubectl, refusal(scenario.kubectl)):
            _until_told(scenario.job, _lose_worker(scenario), said)
    finally:
        cluster.local().restart_mpi_operator()  # its pause before the next try doubles with each that failed
    scenario.job.wait_size(SIZE)
    assert not scenario.account.skipped()


@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_an_operator_that_is_away_is_told(cluster: Site, scenario: Scenario) -> None:
    machine = cluster.local()
    machine.daemon("mpi-operator").stop(with_signal=SIGKILL)
    try:
        _until_told(scenario.job, _lose_worker(scenario), "the operator has made nothing for")
    finally:
        machine.restart_mpi_operator()
    scenario.job.wait_size(SIZE)
    assert not scenario.account.skipped()


def _lose_worker(scenario: Scenario) -> str:
    name = str(scenario.job.pods(Role.WORKER)[-1]["metadata"]["name"])
    scenario.timeline.mark(f"{name} is deleted")
    pods.delete(scenario.kubectl, name, by_force=True)
    return name


def _until_told(job: Job, worker: str, said: str) -> None:
    seen: list[dict[str, Any]] = []

    def is_told() -> bool:
        seen[:] = [one for one in told(job.kubectl, "status", job.name)["workers"] if one["pod"] == worker]
        return seen[0]["state"] == WorkerPodState.ABSENT and said in seen[0]["why"]

    waiting.until(said, is_told, within_seconds=60, every_seconds=1, seen=lambda: str(seen))
