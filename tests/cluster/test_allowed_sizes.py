"""A job of four workers that trains with 1, 2 or 4 alone: inference takes one, and one more is surplus."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, SIZE, Scenario, Standing, nothing_lost
from testbed.kube import waiting
from tests.cluster.test_operating import run, told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

HALF = SIZE // 2


@pytest.fixture(scope="module")
def standing(cluster: Site, request: pytest.FixtureRequest) -> Iterator[Standing]:
    """The job that the scenarios of a launcher (the parameter) share."""
    kept = Standing(
        site=cluster,
        launcher=request.param,
        folder=Path(request.config.rootpath) / "out" / "cluster" / f"sizes-{request.param}",
        keys={"workers": jobs.workers((1, SIZE, SIZE)) | {"sizes": [1, HALF, SIZE]}},
    )
    yield kept
    kept.end()


@pytest.mark.parametrize("standing", BOTH_LAUNCHERS, indirect=True)
def test_inference_takes_one_worker_and_one_more_is_surplus_until_it_comes_back(
    cluster: Site, scenario: Scenario
) -> None:
    kubectl, job = scenario.kubectl, scenario.job
    job.wait_steps(10)
    load = inference.deploy(cluster, kubectl)
    load.scale(1)
    job.wait_size(HALF)
    load.wait(1)

    def surplus() -> list[Any]:
        words = f"surplus until there are {SIZE}"
        return [one for one in told(kubectl, "status", job.name, exit_code=None)["workers"] if words in one["why"]]

    waiting.until("status shows the one that is left over", lambda: len(surplus()) == 1, within_seconds=60)
    job.wait_steps(10)
    assert len(job.pods(Role.WORKER)) == SIZE, "nobody gives it back where there is no autoscaler"

    back = scenario.timeline.mark("given back")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    job.wait_steps(10)
    assert scenario.account.sizes == [SIZE, HALF, SIZE]
    nothing_lost(scenario.account)
    assert told(kubectl, "cost", job.name)["idle_gpu_seconds"] > 0

    refused = run(kubectl, "scale", job.name, str(SIZE - 1))
    assert refused.returncode != 0
    assert f"1, {HALF} or {SIZE} as its number of workers, so not {SIZE - 1}" in refused.stderr
