"""A worker that gets little CPU is named, and nobody else; `slow_workers: replace` gives its place to another."""

from typing import Final

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import jobs
from testbed.cluster.pod_cgroups import throttled
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.faults.reports import until_events, until_status

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

WORKERS: Final = 3
REPLACED_SECONDS: Final = 480.0
"""It must have been slow for five minutes, and is named before."""


def test_it_is_named_and_replaced(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    sizes = jobs.workers((1, WORKERS, WORKERS), gpus=0)  # what computes on a GPU is compared with nobody yet
    job = start(cluster, namespace, "launch", workers=sizes, checkpoint=DURABLE, slow_workers="replace")
    job.wait_size(WORKERS)
    slow = job.pods(Role.WORKER)[-1]["metadata"]
    timeline.mark("a worker has a tenth of a CPU")
    with throttled(slow["uid"], cpus=0.1):
        until_status(job, "it is named", lambda status: bool(status["slow"]), within_seconds=120)
        until_status(job, "it alone is named", lambda status: [one["pod"] for one in status["slow"]] == [slow["name"]])
        timeline.mark("status names it")
        waiting.until(
            "another pod has its name",
            lambda: slow["uid"] not in {pod["metadata"]["uid"] for pod in job.pods(Role.WORKER)},
            within_seconds=REPLACED_SECONDS,
            every_seconds=1,
            seen=job.describe,
        )
    back = timeline.mark("it is gone")
    until_events(job, "times as long as the others")
    job.wait_size(WORKERS, since=back)
    until_status(job, "nobody is slow", lambda status: status["slow"] == [])
    job.finish()
    nothing_lost(job.account, ended=True)
