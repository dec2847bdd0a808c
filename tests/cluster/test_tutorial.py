"""The tutorial's steps on a cluster, typed as the page has them: only the names of images are those of this cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster.site import RESULTS, Site, make_namespace, remove_namespace, share
from testbed.kube import store, waiting
from testbed.kube.kubectl import Kubectl
from tests.documentation import tutorial_page

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

PAUSE = "registry.k8s.io/pause:3.10"
ENDLESS = ("hvd-elastic watch first", "hvd-elastic logs first -f")
"""They end when a person or the job ends them."""
DOUBTFUL = "hvd-elastic doctor"
"""Its exit code says what this cluster lacks."""


class Person:
    """Types commands in a folder, with a kubeconfig whose namespace is this test's."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self._folder = folder
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
        programs = (str(Path(sys.executable).parent), str(kubectl.program.parent), os.environ["PATH"])
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": os.pathsep.join(programs)}
        self.types(f"kubectl config set-context --current --namespace={kubectl.namespace}")

    def types(self, command: str, *, may_fail: bool = False) -> str:
        """What a command prints."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command],
            cwd=self._folder, env=self._environment, text=True, capture_output=True, check=False, timeout=240,
        )  # fmt: skip
        assert may_fail or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.types("hvd-elastic status first -o json"))
        return document

    def worker(self, number: int) -> dict[str, Any]:
        """What `status` says of one worker; empty if it does not name it."""
        found = (worker for worker in self.status()["workers"] if worker["pod"] == f"first-worker-{number}")
        return next(found, {})


@pytest.fixture
def here(cluster: Site) -> Iterator[Kubectl]:
    """A namespace as people have one: without a standard for its pods."""
    made = make_namespace(cluster, "tutorial")
    cluster.kubectl("label", "namespace", "tutorial", "pod-security.kubernetes.io/enforce-")
    yield made
    remove_namespace(cluster, "tutorial")


def test_steps_5_to_7(cluster: Site, here: Kubectl, tmp_path: Path) -> None:
    share(cluster, here, RESULTS)
    person = Person(here, tmp_path)
    (tmp_path / "job.yaml").write_text(tutorial_page.job().replace(tutorial_page.IMAGE, cluster.image))
    begins = [*tutorial_page.commands(5), *tutorial_page.commands(6)]
    assert {*ENDLESS, DOUBTFUL} <= set(begins)
    for command in begins:
        if command not in ENDLESS:
            person.types(command, may_fail=command == DOUBTFUL)
    waiting.until(
        "worker 0 trains",
        lambda: person.worker(0).get("state") == "training",
        within_seconds=180,
        seen=lambda: str(person.status()),
    )

    preempt, free, *ends = tutorial_page.commands(7)
    person.types(preempt.replace(PAUSE, store.PAUSE_IMAGE))
    by = f"preempted by {here.namespace}/inference"
    waiting.until(
        "status names the worker, and the pod that took its place",
        lambda: by in json.dumps(person.worker(0)),
        within_seconds=60,
        seen=lambda: str(person.status()),
    )
    waiting.until(
        "the inference pod runs",
        lambda: here.get("pod", "inference")["status"]["phase"] == "Running",
        within_seconds=60,
        seen=lambda: here("get", "pods", "-o", "wide"),
    )

    person.types(free)
    waiting.until(
        "worker 0 trains again",
        lambda: person.worker(0).get("state") == "training",
        within_seconds=180,
        seen=lambda: str(person.status()),
    )
    told = [person.types(command) for command in ends]
    assert by in told[0], "its events"
    assert here.find("mpijob", "first") is None
