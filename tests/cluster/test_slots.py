"""Two workers of two GPUs each, so of two training processes: a pod comes and goes as a whole."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs
from testbed.cluster.faults import kill_training
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, SIZE, Scenario, Standing, nothing_lost
from testbed.cluster.training import Account

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

SLOTS: Final = 2
WORKERS: Final = SIZE // SLOTS


@pytest.fixture(scope="module")
def standing(cluster: Site, request: pytest.FixtureRequest) -> Iterator[Standing]:
    """The job that the scenarios of a launcher (the parameter) share: its four processes are in two pods."""
    kept = Standing(
        site=cluster,
        launcher=request.param,
        folder=Path(request.config.rootpath) / "out" / "cluster" / f"slots-{request.param}",
        keys={"workers": jobs.workers((1, WORKERS, WORKERS), gpus=SLOTS)},
    )
    yield kept
    kept.end()


@pytest.mark.parametrize("standing", BOTH_LAUNCHERS, indirect=True)
def test_inference_takes_a_pod_with_both_its_processes(cluster: Site, scenario: Scenario) -> None:
    job = scenario.job
    job.wait_steps(10)
    assert sorted(_ranks(job, scenario.began).values()) == [(0, 1), (2, 3)], "each pod has neighbouring ranks"

    taken = scenario.timeline.mark("one GPU for inference")
    load = inference.deploy(cluster, scenario.kubectl)
    load.scale(1)
    job.wait_size(SLOTS)
    load.wait(1)
    job.wait_steps(10)
    before, after = _both_sides(job.account.since(taken), SIZE, SLOTS)
    assert {event["rank"] for event in before} == set(range(SIZE)), "every process had its part in the last step"
    assert after[0]["step"] == before[0]["step"] + 1
    assert list(_ranks(job, after[0]["time"]).values()) == [(0, 1)], "the survivors are of one pod"

    back = scenario.timeline.mark("given back")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    job.wait_steps(10)
    assert sorted(_ranks(job, _first_step(job, back, SIZE)).values()) == [(0, 1), (2, 3)]
    nothing_lost(scenario.account)


@pytest.mark.parametrize("slot", range(SLOTS))
@pytest.mark.parametrize("standing", BOTH_LAUNCHERS, indirect=True)
def test_one_of_two_processes_of_a_pod_killed(scenario: Scenario, slot: int) -> None:
    """Its pod is left out as a whole, for Horovod gives up hosts, and comes back with two fresh processes."""
    job = scenario.job
    pods = _containers(job)
    victim = job.pods(Role.WORKER)[1]["metadata"]["name"]
    killed = scenario.timeline.mark(f"kill -9 of slot {slot}")
    assert kill_training(job, victim, f"--slot={slot}")
    job.wait_smaller(SIZE, since=killed)
    job.wait_size(SIZE, since=killed)
    job.wait_steps(10)
    sizes = scenario.account.sizes
    assert sizes == [SIZE, SLOTS, SIZE], "the other process of the pod went with it, and both came back together"
    assert not scenario.account.skipped()
    assert len(scenario.account.repeated()) <= 1, "more was lost than the step that was under way"
    assert sorted(_ranks(job, _first_step(job, killed, SIZE, after=SLOTS)).values()) == [(0, 1), (2, 3)]
    assert _containers(job) == pods, "the pod itself was not ended"


def _ranks(job: Job, moment: float) -> dict[str, tuple[int, ...]]:
    """Ranks that have done a step at `moment` or later, by the host as its processes know it."""
    found: dict[str, set[int]] = defaultdict(set)
    for file in (job.shared / "events").glob("*.jsonl"):
        host, _pid, _began = file.stem.rsplit("-", 2)
        steps = [event for event in Account.read(file.parent, file.name).since(moment).events if _is_step(event)]
        found[host].update(event["rank"] for event in steps)
    return {host: tuple(sorted(ranks)) for host, ranks in found.items() if ranks}


def _both_sides(account: Account, size: int, smaller: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All processes' accounts of the last step at a size, and of the first step at the smaller one that follows."""
    steps = [event for event in account.events if _is_step(event)]
    last = max(event["step"] for event in steps if event["size"] == size)
    first = min(event["step"] for event in steps if event["size"] == smaller)
    return [e for e in steps if e["step"] == last], [e for e in steps if e["step"] == first]


def _first_step(job: Job, since: float, size: int, *, after: int = 0) -> float:
    """When the first step at a size was done; with `after`, the first that follows a step at that other size."""
    steps = job.account.since(since).steps
    begin = next((number for number, step in enumerate(steps) if step["size"] == after), 0)
    return float(next(step["time"] for step in steps[begin:] if step["size"] == size))


def _is_step(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "step")


def _containers(job: Job) -> set[tuple[str, int]]:
    """Each worker by its UID, and how often its container was started again."""
    return {
        (pod["metadata"]["uid"], sum(status["restartCount"] for status in pod["status"]["containerStatuses"]))
        for pod in job.pods(Role.WORKER)
    }
