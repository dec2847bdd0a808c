"""Suspend and resume, as Kueue does them to every job that it admits, under the operator's own rights as released."""

import time
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import object_store
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, DURABLE, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

SLOW_SECONDS: Final = 8.0
"""What the last checkpoint takes: a launcher that waits for nobody gives its workers 3 s."""


def suspend(job: Job, *, yes: bool) -> None:
    job.kubectl.patch("mpijob", job.name, {"spec": {"runPolicy": {"suspend": yes}}})


def running(job: Job, role: Role) -> list[dict[str, Any]]:
    return [pod for pod in job.pods(role) if pod["status"].get("phase") == "Running"]


def wait_gone(job: Job) -> None:
    waiting.until(
        "every pod is gone",
        lambda: not job.pods(Role.WORKER) and not job.pods(Role.LAUNCHER),
        within_seconds=60,
        seen=job.describe,
    )


@pytest.mark.core
def test_suspend_resume_and_apply_again(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    job = start(cluster, namespace, "launch", checkpoint=DURABLE)
    job.wait_size(SIZE)
    job.wait_steps(10)

    timeline.mark("suspended")
    suspend(job, yes=True)
    wait_gone(job)
    done = job.account.steps[-1]["step"]

    back = timeline.mark("resumed")
    suspend(job, yes=False)
    job.wait_size(SIZE, since=back)
    again = job.account.since(back).steps[0]["step"]
    assert again <= done + 1
    assert not job.account.skipped()

    timeline.mark("suspended and resumed at once")
    suspend(job, yes=True)
    suspend(job, yes=False)
    back = timeline.mark("resumed")
    job.wait_size(SIZE, since=back)

    timeline.mark("deleted and applied again")
    namespace("delete", "mpijob", job.name, "--wait=true")
    waiting.until("its pods are gone", lambda: not running(job, Role.WORKER), within_seconds=60, seen=job.describe)
    namespace("apply", "-f", str(job.shared / "manifests.yaml"))
    back = timeline.mark("applied again")
    job.wait_size(SIZE, since=back)
    assert not job.account.skipped()


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_the_last_checkpoint_may_take_its_time(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """Launcher and workers are told together; the launcher stays until the workers' last checkpoint is stored."""
    with object_store.serving_checkpoints(cluster, namespace) as store:
        job = start(cluster, namespace, launcher, **object_store.checkpoints_in(store))
        job.wait_size(SIZE)
        job.wait_steps(10)
        with store.valve.writes_held():
            timeline.mark("suspended")
            suspend(job, yes=True)
            time.sleep(SLOW_SECONDS)
            assert running(job, Role.LAUNCHER)
        timeline.mark("the store is fast again")
        wait_gone(job)
        back = timeline.mark("resumed")
        suspend(job, yes=False)
        job.wait_size(SIZE, since=back)
        nothing_lost(job.account)


def test_a_job_that_begins_suspended(cluster: Site, namespace: Kubectl) -> None:
    """Its launcher's Job has not started yet, so the operator needs no right that it has not."""
    job = start(cluster, namespace, "launch", suspend=True)
    waiting.until("it is suspended", lambda: _is(job, "Suspended"), within_seconds=30, seen=job.describe)
    assert not job.pods(Role.WORKER)
    suspend(job, yes=False)
    job.wait_size(SIZE)


def _is(job: Job, condition: str) -> bool:
    return condition_of(job.kubectl.get("mpijob", job.name), condition) == "True"
