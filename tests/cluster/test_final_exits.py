"""A job that has used up its `reset_limit`, or whose script is wrong, ends once and for all, and says why."""

from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Exit, Role
from testbed.cluster import jobs
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, DURABLE, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl, condition_of
from tests.cluster.test_operating import call, told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

WORKERS: Final = 3
FAILED: Final = 20
EXHAUSTED: Final = 21
"""Exit codes of `hvd-elastic status` (docs/status.md)."""

LEAVES_ALONE: Final = """
import os, torch
import horovod.torch as hvd
import hvd_elastic as elastic

elastic.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())

@elastic.run
def train(state):
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.commit()
        if hvd.size() == 2 and hvd.rank() == 1:
            os._exit(0)

train(elastic.State(model=model, optimizer=optimizer))
"""


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_a_used_up_reset_limit_ends_the_job(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """One reset is allowed, and two workers are deleted in turn. By its `restarts` it had five more launchers."""
    job = start(
        cluster,
        namespace,
        launcher,
        workers=jobs.workers((1, WORKERS, WORKERS)),
        checkpoint=DURABLE,
        reset_limit=1,
        restarts=5,
    )
    job.wait_size(WORKERS)
    for worker in (WORKERS - 1, WORKERS - 2):
        before = timeline.mark(f"worker {worker} is deleted")
        # The first one's successor may have used the limit up before the second one is deleted.
        namespace("delete", "pod", f"{job.name}-worker-{worker}", "--wait=false", "--ignore-not-found")
        waiting.until(
            "a smaller world, or the end",
            lambda since=before: has_ended(job) or any(size < WORKERS for size in job.account.since(since).sizes),  # type: ignore[misc]
            within_seconds=90,
            seen=job.describe,
        )
    job.wait_end("Failed")
    timeline.mark("the MPIJob has failed")

    launchers = job.pods(Role.LAUNCHER)
    assert [exit_code(pod) for pod in launchers] == [Exit.RESET_LIMIT], "no launcher followed"
    batch = namespace.get("job", f"{job.name}-launcher")
    assert condition_of(batch, "Failed") == "True", "Kubernetes makes no other one"
    assert batch["status"]["failed"] == 1
    assert not batch["status"].get("active")

    status = told(namespace, "status", job.name, exit_code=EXHAUSTED)
    assert status["state"] == "exhausted"
    assert "its reset limit was reached" in call(namespace, "status", job.name, exit_code=EXHAUSTED)
    waiting.until("its Event says so", lambda: "ResetLimitReached" in reasons(namespace), within_seconds=30)
    assert not job.account.skipped()


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_a_script_that_is_wrong_ends_the_job(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """One of two ranks ends with 0 in the middle of training. It was a success, and is nothing to try again."""
    job = start(
        cluster,
        namespace,
        launcher,
        command=["python", "-c", LEAVES_ALONE],
        workers=jobs.workers((2, 2, 2)),
        restarts=5,
    )
    job.wait_end("Failed")
    timeline.mark("the MPIJob has failed")

    assert [exit_code(pod) for pod in job.pods(Role.LAUNCHER)] == [Exit.SCRIPT_MISTAKE], "no launcher followed"
    assert condition_of(namespace.get("job", f"{job.name}-launcher"), "Failed") == "True"
    assert "rank 1 has ended its process with exit code 0" in call(namespace, "status", job.name, exit_code=FAILED)


def reasons(kubectl: Kubectl) -> set[str]:
    """Of the Events about MPIJobs."""
    return {event["reason"] for event in jobs.events(kubectl) if event["involvedObject"]["kind"] == "MPIJob"}


def has_ended(job: Job) -> bool:
    return condition_of(job.kubectl.get("mpijob", job.name), "Failed") == "True"


def exit_code(pod: dict[str, Any]) -> int | None:
    """With which the launcher's container ended; None while it runs."""
    states = {one["name"]: one["state"] for one in pod["status"].get("containerStatuses") or ()}
    ended = states.get("launcher", {}).get("terminated")
    return None if ended is None else int(ended["exitCode"])
