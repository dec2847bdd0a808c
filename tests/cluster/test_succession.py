"""The last workers of a job without a checkpoint: they keep its state for who may follow, and their GPUs for nobody."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, jobs, pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

GRACE_SECONDS: Final = 300
"""Far longer than anything here is waited for, so that who waits for its end fails."""


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_a_worker_that_nobody_can_relieve_leaves_at_once(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """The job's other worker has never had a GPU, and inference takes the only one that the job has."""
    jobs.priority_classes(cluster)
    load = inference.deploy(cluster, namespace)
    load.scale(SIZE - 1)
    load.wait(SIZE - 1)
    job = start(cluster, namespace, launcher, workers=jobs.workers((1, 1, 2), grace=GRACE_SECONDS))
    job.wait_size(1)
    job.wait_steps(10)
    (worker,) = _bound(job)
    launched = _uids(job, Role.LAUNCHER)

    timeline.mark("inference takes the last GPU")
    load.scale(SIZE)
    load.wait(SIZE)
    end = waiting.until("the worker's end is told", lambda: _end(timeline, worker), within_seconds=30)
    assert end["container"]["exitCode"] == 0
    assert end["container"]["finishedAt"] < end["deadline"]
    waiting.until(
        "the worker was told why it need not wait",
        lambda: "no other worker can take the state over" in _log(timeline, worker),
        within_seconds=30,
        seen=lambda: _log(timeline, worker),
    )

    back = timeline.mark("one GPU is given back")
    load.scale(SIZE - 1)
    job.wait_size(1, since=back)
    job.wait_steps(10)
    assert _uids(job, Role.LAUNCHER) == launched, "a take-over has spent a restart"
    job.finish()


def test_a_worker_that_starts_takes_the_state_over(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    job = start(cluster, namespace, "launch", workers=jobs.workers((1, 2, 2), grace=GRACE_SECONDS))
    job.wait_size(2)
    last, first = _bound(job)
    left = timeline.mark("one of two is deleted")
    pods.delete(namespace, first["name"])
    job.wait_size(1, since=left)
    known = {last["uid"], first["uid"]}
    waiting.until(
        "the next one is bound",
        lambda: [pod for pod in _bound(job) if pod["uid"] not in known],
        within_seconds=60,
        every_seconds=0.1,
        seen=job.describe,
    )
    gone = timeline.mark("the other one is deleted, while the next one starts")
    pods.delete(namespace, last["name"])
    waiting.until("it is gone", lambda: last["uid"] not in _uids(job, Role.WORKER), within_seconds=120)
    job.wait_size(2, since=gone)
    nothing_lost(job.account)
    job.finish()


def _uids(job: Job, role: Role) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods(role)}


def _bound(job: Job) -> list[dict[str, Any]]:
    """The metadata of the workers that have a node, by name."""
    return [pod["metadata"] for pod in job.pods(Role.WORKER) if pod["spec"].get("nodeName")]


def _end(timeline: Timeline, worker: dict[str, Any]) -> dict[str, Any] | None:
    """How the worker's container has ended, and the end of its grace; None while that is not known."""
    for pod in _seen(timeline, worker["uid"]):
        for status in pod["status"].get("containerStatuses", []):
            if ended := status["state"].get("terminated"):
                return {"container": ended, "deadline": pod["metadata"]["deletionTimestamp"]}
    return None


def _seen(timeline: Timeline, uid: str) -> Iterator[dict[str, Any]]:
    """The pod as the API server told of it, oldest first; a line that is still being written is left out."""
    for line in (timeline.folder / "pods.jsonl").read_text().splitlines(keepends=True):
        if line.endswith("\n") and (pod := json.loads(line)["object"])["metadata"]["uid"] == uid:
            yield pod


def _log(timeline: Timeline, worker: dict[str, Any]) -> str:
    return "".join(
        log.read_text(errors="replace")
        for log in (timeline.folder / "logs").glob(f"{worker['name']}.{worker['uid'][:8]}.*.log")
    )
