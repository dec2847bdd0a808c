"""Whoever waits for a job waits on while the API server fails, ten seconds with each fault, on a real cluster."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.client.connection.login_lookup import discovery_access
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, SIZE, start
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.faultproxy import Cut, FaultProxy, Refusal

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

FAULT_SECONDS = 10
FAULTS = [
    *(Refusal(status) for status in (401, 403, 500, 503)),
    Refusal(429, {"Retry-After": "2"}),
    Cut(),
]


@pytest.fixture
def proxy(namespace: Kubectl, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Before the API server, with the rights of whoever runs the tests."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    access, _ = discovery_access()
    made = FaultProxy(access)
    yield made
    made.stop()


@contextlib.contextmanager
def waiters(proxy: FaultProxy, job: str, namespace: str, folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Everybody who may wait for a job that trains, by verb. What each prints is in a file of this folder."""
    kubeconfig = folder / "kubeconfig"
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{proxy.access().port}"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "namespace": namespace}}],
    }
    kubeconfig.write_text(json.dumps(config))
    verbs = {
        "logs": ["logs", job, "-f"],
        "watch": ["watch", job],
        "status": ["status", job, "--wait-for", "succeeded"],
    }
    processes = dict[str, subprocess.Popen[str]]()
    try:
        for verb, words in verbs.items():
            with (folder / verb).open("w") as output:
                processes[verb] = subprocess.Popen(
                    [sys.executable, "-m", "hvd_elastic.cli", *words],
                    env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_no_fault_ends_a_wait(cluster: Site, namespace: Kubectl, proxy: FaultProxy, tmp_path: Path) -> None:
    job = start(cluster, namespace, "launch", checkpoint=DURABLE)
    job.wait_size(SIZE)
    with waiters(proxy, job.name, namespace.namespace, tmp_path) as processes:
        for verb in ("logs", "watch"):
            waiting.until(f"{verb} has begun", (tmp_path / verb).read_text, within_seconds=60)
        waiting.until("status has looked", lambda: len(proxy.requests) > 20, within_seconds=60)
        for fault in FAULTS:

            def fail(_path: str, fault: Exception = fault) -> None:
                raise fault

            proxy.before = fail
            time.sleep(FAULT_SECONDS)  # the fault lasts for so long
            proxy.heal()
            proxy.requests.clear()
            waiting.until("they ask again", lambda: len(proxy.requests) > 20, within_seconds=60)
            ended = {verb: (tmp_path / verb).read_text() for verb, one in processes.items() if one.poll() is not None}
            assert not ended, repr(fault)
        job.finish()
        codes = {verb: process.wait(timeout=120) for verb, process in processes.items()}
    assert codes == dict.fromkeys(processes, 0), {verb: (tmp_path / verb).read_text() for verb in processes}
