"""`profile`: a job that trains is measured at other sizes, and is left as it was."""

import pytest

from testbed.cluster.standing import LAUNCHERS, SIZE, Scenario
from tests.cluster.test_operating import told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

STEPS = 20
VISITED = (1, SIZE - 1)


@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_a_job_is_measured_at_each_size_and_has_its_own_again(scenario: Scenario) -> None:
    sizes = ",".join(map(str, VISITED))
    words = ("profile", scenario.job.name, "--sizes", sizes, "--steps", str(STEPS), "--batch", "60")
    profile = told(scenario.kubectl, *words)
    by_size = {one["workers"]: one for one in profile["sizes"]}
    assert all(by_size[size]["steps"] >= STEPS for size in VISITED)
    assert all(one["samples_per_second"] > 0 for one in profile["sizes"])
    scenario.job.wait_size(SIZE)
    status = told(scenario.kubectl, "status", scenario.job.name)
    assert (status["size"], status["wanted"]) == (SIZE, SIZE)
    assert not scenario.job.account.skipped()
