"""`logs -f` on a real cluster: one story over a launcher that is taken away, to the end of the job."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, SIZE, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.core
def test_it_follows_over_the_launchers_of_a_job(
    cluster: Site, namespace: Kubectl, timeline: Timeline, tmp_path: Path
) -> None:
    job = start(cluster, namespace, "launch", checkpoint=DURABLE)
    job.wait_size(SIZE)
    words = [sys.executable, "-m", "hvd_elastic.cli", "logs", job.name, "-n", namespace.namespace, "-f", "-o", "json"]
    environment = {**os.environ, "KUBECONFIG": str(namespace.kubeconfig)}
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        process = subprocess.Popen(words, env=environment, stdout=output, stderr=subprocess.PIPE, text=True)
    try:
        waiting.until("the verb follows", lambda: printed.stat().st_size, within_seconds=60)
        (first,) = (pod["metadata"]["name"] for pod in job.pods(Role.LAUNCHER))
        deleted = timeline.mark("the launcher is deleted")
        namespace("delete", "pod", first, "--wait=true")
        job.wait_size(SIZE, since=deleted)
        job.finish()
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in printed.read_text().splitlines()]
    launchers = list(dict.fromkeys(line["launcher"] for line in lines))
    assert launchers[0] == first
    assert len(launchers) == 2, "each launcher once, and none twice"
    assert {0, None} <= {line["rank"] for line in lines}
    assert [line["time"] for line in lines if line["launcher"] == first] == sorted(
        line["time"] for line in lines if line["launcher"] == first
    )
    assert f"going on with {launchers[1]}" in said
    assert f"job {job.name} has succeeded" in said
