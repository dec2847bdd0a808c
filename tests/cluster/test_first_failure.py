"""A job whose script never runs: `submit --wait` says so within its first failure, and nothing says that it trained."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testbed.cluster import jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_operating import told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]

STARTING = 10
"""Exit code of `hvd-elastic status` (docs/status.md)."""


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["pyhton", "train.py"], "exit code 127: pyhton: No such file or directory"),
        (["python", "/workspace/missing.py"], "can't open file '/workspace/missing.py'"),
    ],
    ids=["typo", "no-script"],
)
def test_what_never_runs_is_named_by_its_first_failure(
    cluster: Site, namespace: Kubectl, tmp_path: Path, launcher: str, command: list[str], said: str
) -> None:
    jobs.priority_classes(cluster)
    description = jobs.describe(
        cluster, namespace, "toy", command, workers=jobs.workers((1, 1, 1)), launcher={"kind": launcher, "cpu": "100m"}
    )
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(description))
    done = subprocess.run(
        [sys.executable, "-m", "hvd_elastic.cli", "submit", str(path), "--wait"],
        env={**os.environ, "KUBECONFIG": str(namespace.kubeconfig), "HVD_ELASTIC_NAMESPACE": namespace.namespace},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert "toy trains" not in done.stderr
    launchers = [pod for pod in namespace.list("pods") if "-launcher" in pod["metadata"]["name"]]
    assert sum(pod["status"]["phase"] == "Failed" for pod in launchers) == 1
    assert told(namespace, "status", "toy", exit_code=STARTING)["state"] == "starting"
