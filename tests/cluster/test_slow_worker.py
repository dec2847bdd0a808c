"""A worker that has less of a CPU than the others: it is named, and replaced where the job asks for that."""

from typing import Any

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import jobs, standing
from testbed.cluster.pod_cgroups import throttled
from testbed.cluster.site import Site
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl
from tests.cluster.faults.reports import until_events, until_status
from tests.cluster.test_operating import told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

BUSY = [*jobs.PACED, "--busy", "0.02"]
"""It computes; one that sleeps for most of a step is as fast with a tenth of a CPU."""
WITHOUT_GPUS = jobs.workers((1, standing.SIZE, standing.SIZE), gpus=0)
"""Who is slow on a GPU is not known yet."""


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({}, id="report", marks=pytest.mark.core),
        pytest.param({"engine": "torch"}, id="report-torch"),
        pytest.param({"slow_workers": "replace", "workers": WITHOUT_GPUS}, id="replace"),
    ],
)
def test_a_worker_with_a_tenth_of_a_cpu(
    cluster: Site, namespace: Kubectl, timeline: Timeline, keys: dict[str, Any]
) -> None:
    cluster.local()
    job = standing.start(cluster, namespace, "launch", command=BUSY, **keys)
    job.wait_size(standing.SIZE)
    job.wait_steps(50)
    pod = job.pods(Role.WORKER)[-1]["metadata"]
    timeline.mark("a worker has a tenth of a CPU")
    with throttled(pod["uid"], cpus=0.1):
        until_status(job, "it is named", lambda status: [one["pod"] for one in status["slow"]] == [pod["name"]])
        until_events(job, pod["name"], "times as long as the others", "computing")
        if keys.get("slow_workers") == "replace":
            until_events(job, pod["name"], "replaced", within_seconds=400)
    timeline.mark("all have what they want")
    if keys.get("slow_workers") == "replace":
        job.wait_size(standing.SIZE, since=timeline.mark("another worker comes"))
        assert job.pods(Role.WORKER)[-1]["metadata"]["uid"] != pod["uid"]
    until_status(job, "nobody is slow", lambda status: status["slow"] == [], within_seconds=300)
    job.finish()
    standing.nothing_lost(job.account, ended=True)
    named = [one["about"] for one in told(namespace, "events", job.name) if "times as long" in one["what"]]
    assert all(pod["name"] in about for about in named), named
