"""A researcher's first job: described in a file, generated, applied, trained on real data to its end, nothing left.

It was applied by kubectl, and kubectl deletes it: its rights stay, which no token may own, until `delete` removes them.
"""

import re

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import jobs
from testbed.cluster.site import Site, owned_by_nobody
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]


@pytest.mark.parametrize("launcher", ["launch", pytest.param("horovodrun", marks=pytest.mark.core)])
def test_first_job(cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str) -> None:
    jobs.priority_classes(cluster)
    command = ["python", "/workspace/examples/digits_elastic.py", "--epochs", "10"]
    kind = {"kind": launcher, "cpu": "100m"}
    description = jobs.describe(cluster, namespace, "digits", command, launcher=kind)
    timeline.mark("apply")
    job = jobs.submit(cluster, namespace, description)
    job.wait_end()
    timeline.mark("succeeded")
    assert not job.account.skipped()
    assert not job.account.repeated()
    accuracies = re.findall(r"accuracy ([\d.]+)", job.log())
    assert float(accuracies[-1]) > 0.9
    waiting.until("all workers are gone", lambda: not job.pods(Role.WORKER), within_seconds=60, seen=job.describe)

    namespace("delete", "mpijob", job.name, "--wait=true")
    waiting.until(
        "nothing is left behind but its rights",
        lambda: set(owned_by_nobody(namespace)) == {"Role/digits-discovery", "RoleBinding/digits-discovery"},
        within_seconds=60,
        seen=lambda: str(owned_by_nobody(namespace)),
    )
    call(namespace, "delete", job.name, "--yes")
    assert owned_by_nobody(namespace) == []
