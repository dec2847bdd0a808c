"""The disk of the checkpoints is full, and then there is room again."""

import pytest

from testbed.cluster import jobs
from testbed.cluster.site import Site
from testbed.cluster.small_disk import small_disk
from testbed.cluster.standing import DURABLE, LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl
from tests.cluster.faults.reports import until_status

pytestmark = [pytest.mark.faults, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_disk_is_full(cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str) -> None:
    shared = jobs.share_results(cluster, namespace)
    with small_disk(shared / "checkpoints") as disk:
        job = start(cluster, namespace, launcher, checkpoint=DURABLE, shared=shared)
        job.wait_size(SIZE)
        until_status(job, "a checkpoint is durable", lambda status: status["durable_step"] >= 0)
        timeline.mark("the disk is full")
        disk.fill()
        until_status(job, "status says why", lambda status: "No space left" in status["save_error"])
        job.wait_steps(20)
        timeline.mark("there is room again")
        disk.clear()
        before = job.account.steps[-1]["step"]
        until_status(job, "saves succeed", lambda status: not status["save_error"] and status["durable_step"] > before)
        job.finish()
        nothing_lost(job.account, ended=True)
