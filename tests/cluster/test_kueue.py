"""A whole job in a queue of Kueue: admitted by quota, taken whole by another queue, and back where it was.

Of workers that are queued one by one: `test_kueue_workers.py`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import GPU_RESOURCE, Role
from testbed.cluster import inference, queues
from testbed.cluster.inference import Inference
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.gomodules import VERSIONS
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.fixture(scope="module", params=VERSIONS["kueue"], autouse=True)
def kueue(cluster: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """The release that runs."""
    with queues.kueue_with_queues(cluster, gpus=SIZE, version=request.param):
        yield request.param


@pytest.fixture
def queued(namespace: Kubectl, kueue: str) -> Kubectl:
    """The namespace with a queue for training and one for serving."""
    queues.open_queues(namespace, kueue)
    return namespace


def train(cluster: Site, kubectl: Kubectl, launcher: str = "launch") -> Job:
    queue = {"system": "kueue", "name": queues.TRAINING, "whole": True}
    return start(cluster, kubectl, launcher, checkpoint=DURABLE, queue=queue)


def serve(cluster: Site, kubectl: Kubectl) -> Inference:
    return inference.deploy(cluster, kubectl, queue=queues.SERVING)


def workload(job: Job) -> dict[str, Any]:
    uid = job.kubectl.get("mpijob", job.name)["metadata"]["uid"]
    # Both releases serve it; kubectl remembers for hours what the one before preferred.
    (found,) = job.kubectl.list("workloads.v1beta1.kueue.x-k8s.io", selector=f"kueue.x-k8s.io/job-uid={uid}")
    return found


def said(verb: str, job: Job) -> str:
    """What a person reads."""
    command = [sys.executable, "-m", "hvd_elastic.cli", *verb.split(), "--namespace", job.kubectl.namespace]
    environment = {**os.environ, "KUBECONFIG": str(job.kubectl.kubeconfig)}
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False, timeout=60).stdout


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_that_is_taken_whole_goes_on_where_it_was(
    cluster: Site, queued: Kubectl, timeline: Timeline, launcher: str
) -> None:
    job = train(cluster, queued, launcher)
    job.wait_size(SIZE)
    job.wait_steps(10)
    examined = said("doctor", job)
    assert "installed: Kueue" in examined
    assert "several accounts" not in examined, "Kueue drives no MPIJobs"

    timeline.mark("serving asks for two of four GPUs")
    load = serve(cluster, queued)
    load.scale(2)
    load.wait(2)
    assert not job.pods(Role.WORKER), "Kueue knows no smaller part of an MPIJob"
    assert not job.pods(Role.LAUNCHER)
    assert condition_of(workload(job), "Evicted") == "True"
    assert "queued" in said(f"status {job.name}", job)
    done = job.account.steps[-1]["step"]

    back = timeline.mark("serving ends")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    assert job.account.since(back).steps[0]["step"] <= done + 1
    job.finish()
    assert not job.account.skipped()
    assert len(job.account.repeated()) <= DURABLE["every"]


def test_a_pod_of_a_higher_class_takes_workers_one_by_one(cluster: Site, queued: Kubectl, timeline: Timeline) -> None:
    """Inference in no queue: the cluster's scheduler takes two workers, and Kueue leaves the others alone."""
    job = train(cluster, queued)
    load = inference.deploy(cluster, queued)
    job.wait_size(SIZE)
    timeline.mark("inference 0 -> 2")
    load.scale(2)
    load.wait(2)
    job.wait_size(SIZE - 2)
    job.wait_steps(10)
    assert condition_of(workload(job), "Admitted") == "True"

    back = timeline.mark("inference 2 -> 0")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    assert condition_of(workload(job), "Evicted") != "True"
    job.finish()
    nothing_lost(job.account, ended=True)


def test_a_job_that_no_quota_holds_waits_and_says_for_what(cluster: Site, queued: Kubectl) -> None:
    load = serve(cluster, queued)
    load.scale(2)
    load.wait(2)
    job = train(cluster, queued)

    def why() -> str:
        return said(f"status {job.name}", job)

    waiting.until(
        "status names what is missing",
        lambda: f"queue {queues.TRAINING}" in why() and GPU_RESOURCE in why(),
        within_seconds=60,
        every_seconds=2,
        seen=why,
    )
    assert not job.pods(Role.WORKER)
    load.scale(0)
    job.wait_size(SIZE)
    job.finish()
