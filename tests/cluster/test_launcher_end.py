"""What a launcher's end costs: nothing when it was taken away, one of the job's `restarts` when it failed."""

import json
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site, owned_by_nobody
from testbed.cluster.standing import DURABLE, SIZE, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl, condition_of
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.core
def test_only_failures_count(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    """Of a job that allows no restart at all the launcher is drained twice, and then fails."""
    job = start(cluster, namespace, "launch", checkpoint=DURABLE, restarts=0)
    job.wait_size(SIZE)
    durable = job.shared / "checkpoints"
    waiting.until("a checkpoint is durable", lambda: any(durable.rglob("manifests/*.json")), within_seconds=60)
    for _ in range(2):
        job.wait_steps(10)
        drained = _launcher(job)
        timeline.mark("the launcher's node is drained")
        _evict(namespace, drained["metadata"]["name"])
        waiting.until(
            "another launcher runs",
            lambda uid=drained["metadata"]["uid"]: _launcher(job, but=uid),  # type: ignore[misc]
            within_seconds=90,
            seen=job.describe,
        )
        back = timeline.mark("another launcher runs")
        job.wait_size(SIZE, since=back)
        assert not job.account.skipped()
        assert condition_of(namespace.get("mpijob", job.name), "Failed") != "True"
    assert min(step["step"] for step in job.account.since(back).steps) > 1, "it began anew"
    limit = waiting.until("both drains are forgiven", lambda: _limit_after_drains(job), within_seconds=60)
    assert limit == 3, "two that were taken away, none that failed, and the spare of the present one"

    timeline.mark("the launcher fails")
    namespace("exec", _launcher(job)["metadata"]["name"], "-c", "launcher", "--", "sh", "-c", "kill 1")
    job.wait_end("Failed")

    timeline.mark("the job is deleted")
    call(namespace, "delete", job.name, "--yes")
    waiting.until(
        "nothing is left behind",
        lambda: not owned_by_nobody(namespace),
        within_seconds=60,
        seen=lambda: str(owned_by_nobody(namespace)),
    )


def _limit_after_drains(job: Job) -> int | None:
    """The launcher's Job's limit, once it has counted both."""
    launcher = job.kubectl.get("job", f"{job.name}-launcher")
    limit = int(launcher["spec"]["backoffLimit"])
    return limit if launcher["status"].get("failed") == 2 and limit > 2 else None


def _launcher(job: Job, *, but: str = "") -> dict[str, Any]:
    """The launcher's pod that runs and is not the one with this UID; empty if there is none."""
    running = (
        pod
        for pod in job.pods(Role.LAUNCHER)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    )
    return next((pod for pod in running if pod["metadata"]["uid"] != but), {})


def _evict(kubectl: Kubectl, name: str) -> None:
    """As `kubectl drain` does (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/)."""
    metadata = {"name": name, "namespace": kubectl.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{name}/eviction"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
