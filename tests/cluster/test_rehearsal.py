"""`doctor --rehearse` on a real cluster: a real preemption, and nothing that stays of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from testbed.cluster import jobs
from testbed.cluster.site import Site
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

PREFIX = "hvd-elastic-rehearsal-"


@pytest.fixture
def everywhere(cluster: Site) -> Iterator[Kubectl]:
    """The cluster with its classes; a rehearsal that a failed test left goes."""
    jobs.priority_classes(cluster)
    kubectl = cluster.kubectl.within("default")
    yield kubectl
    for name in rehearsals(kubectl):
        kubectl("delete", "namespace", name, "--wait=false")


def rehearsals(kubectl: Kubectl) -> list[str]:
    names = [str(one["metadata"]["name"]) for one in kubectl.list("namespaces")]
    return [name for name in names if name.startswith(PREFIX)]


def start(cluster: Site) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "hvd_elastic.cli", "doctor", "--rehearse", "--image", cluster.image, "-o", "json"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubectl.kubeconfig)}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.core
def test_the_promise_is_kept_here(cluster: Site, everywhere: Kubectl) -> None:
    process = start(cluster)
    printed, said = process.communicate(timeout=500)
    assert process.returncode == 0, printed + said
    rows = {row["check"].removeprefix("rehearsal-"): row for row in json.loads(printed)}
    assert {name: row["level"] for name, row in rows.items()} == dict.fromkeys(
        ("start", "preemption", "training", "steps", "growth"), "ok"
    )
    assert "rehearsal-worker-" in rows["preemption"]["evidence"]
    assert rehearsals(everywhere) == []


def test_ctrl_c_leaves_nothing(cluster: Site, everywhere: Kubectl) -> None:
    process = start(cluster)
    try:
        waiting.until("the rehearsal has begun", lambda: bool(rehearsals(everywhere)), within_seconds=120)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "it is gone" in said
    assert rehearsals(everywhere) == []


def test_a_resource_that_no_node_offers_is_refused(cluster: Site, everywhere: Kubectl) -> None:
    words = [sys.executable, "-m", "hvd_elastic.cli", "doctor", "--rehearse", "--image", "image"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubectl.kubeconfig)}
    done = subprocess.run(
        [*words, "--gpus-resource", "example.com/none"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no node offers example.com/none" in done.stderr
    assert rehearsals(everywhere) == []
