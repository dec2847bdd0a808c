"""A data set comes from a bucket into shared storage, training waits for it, and TensorBoard shows what came of it."""

import io
import json
import os
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import yaml

from hvd_elastic.local.demo.demo_data import read_digits
from hvd_elastic.mpijob.contract import ENV_EVENTS, Role
from testbed.cluster import jobs, object_store
from testbed.cluster.jobs import Job
from testbed.cluster.object_store import ObjectStore
from testbed.cluster.site import RESULTS, Site, share
from testbed.cluster.standing import BOTH_LAUNCHERS, nothing_lost
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from testbed.s3_server import CREDENTIALS
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480, func_only=True)]

SHARDS: Final = 60
WORKERS: Final = 2
SOURCE: Final = "s3://team-bucket/digits"
DATA: Final = "data"


@pytest.fixture
def store(cluster: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A bucket with the digits in shards, on the address of this machine that pods reach."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store.serving(cluster.local().plane.subnets.gateway) as served:
        client = served.client()
        client.create_bucket(Bucket="team-bucket")
        images, labels = read_digits()
        for number in range(SHARDS):
            shard = io.BytesIO()
            np.savez(shard, images=images[number::SHARDS], labels=labels[number::SHARDS])
            client.put_object(Bucket="team-bucket", Key=f"digits/{number:03}.npz", Body=shard.getvalue())
        yield served


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_a_data_set_is_staged_trained_on_and_its_curves_are_shown(
    cluster: Site, namespace: Kubectl, timeline: Timeline, store: ObjectStore, launcher: str, tmp_path: Path
) -> None:
    jobs.priority_classes(cluster)
    shared, data = jobs.share_results(cluster, namespace), share(cluster, namespace, DATA)
    login = [f"--from-literal={name}={value}" for name, value in CREDENTIALS.items()]
    namespace("create", "secret", "generic", "bucket-reader", *login)
    job = Job(kubectl=namespace, name="digits", shared=shared)
    path = tmp_path / "digits.yaml"
    path.write_text(described(cluster, namespace, store, launcher))
    call(namespace, "submit", str(path))

    waiting.until("status says what comes", lambda: stage(job)["of_objects"] > 0, within_seconds=120, seen=job.describe)
    waiting.until(
        "status says how far it is",
        lambda: is_further(job, store),
        within_seconds=60,
        every_seconds=0.5,
        seen=lambda: namespace("logs", "--selector=hvd-elastic.dev/stage=digits", "--tail=20"),
    )
    found = stage(job)
    assert (found["phase"], found["source"], found["of_objects"]) == ("copying", SOURCE, SHARDS)
    assert 0 < found["objects"] < SHARDS
    assert re.search(rf"{SOURCE}: copying, \d+ of {SHARDS} objects.*training waits for it", call_status(job))
    waiting.until("the gates say what they wait for", lambda: len(waits(job)) == WORKERS + 1, within_seconds=60)
    assert not job.account.steps
    assert not (data / "digits" / "_SUCCESS").exists()

    opened = timeline.mark("the rest of the data set comes")
    store.valve.open()
    job.wait_size(WORKERS, since=opened, within_seconds=180)
    assert (data / "digits" / "_SUCCESS").exists()
    assert said(job)["stage"] is None

    timeline.mark("TensorBoard")
    command, url = call(namespace, "tensorboard", job.name, "--port", str(free_port())).splitlines()
    namespace.wait("deployment", f"{job.name}-tensorboard", condition="Available", within_seconds=120)
    with forwarded(namespace, command):
        waiting.until("it answers with the loss", lambda: "train/loss" in scalars(url), within_seconds=90)
        first = len(curve(url))
        waiting.until("the curve grows", lambda: len(curve(url)) > first, within_seconds=120, every_seconds=1)
    assert f"deployment/{job.name}-tensorboard deleted" in call(namespace, "tensorboard", job.name, "--delete")
    for kind, name in (("deployment", f"{job.name}-tensorboard"), ("networkpolicy", f"{job.name}.tensorboard")):
        assert namespace.find(kind, name) is None
    selector = f"hvd-elastic.dev/tensorboard={job.name}"
    waiting.until("its pod is gone", lambda: not namespace.list("pods", selector=selector), within_seconds=60)
    job.finish()
    nothing_lost(job.account)  # of which each epoch saw every sample, and so every shard


def described(site: Site, kubectl: Kubectl, store: ObjectStore, launcher: str) -> str:
    description = jobs.describe(
        site,
        kubectl,
        "digits",
        ["python", "/output/scripts/staged.py", "/data/digits"],
        launcher={"kind": launcher, "cpu": "100m"},
        workers=jobs.workers((1, WORKERS, WORKERS)),
        data={"claim": DATA, "mount": "/data"},
        stage={"source": SOURCE, "into": "/data/digits", "endpoint": store.endpoint, "threads": 4, "cpu": "100m"},
        secrets=["bucket-reader"],
        output={"claim": RESULTS},
        env={ENV_EVENTS: "/output/events"},
    )
    return str(yaml.safe_dump(description))


def is_further(job: Job, store: ObjectStore) -> bool:
    """Let one more object come; whether `status` knows of any."""
    store.valve.let_one()
    return bool(stage(job)["objects"] > 0)


def stage(job: Job) -> dict[str, Any]:
    """What `status` says of the data set."""
    found: dict[str, Any] = said(job)["stage"] or {"objects": -1, "of_objects": -1}
    return found


def said(job: Job) -> dict[str, Any]:
    """What `status` says. Its exit code is another one while the job starts."""
    found: dict[str, Any] = json.loads(call(job.kubectl, "status", job.name, "-o", "json", exit_code=None))
    return found


def call_status(job: Job) -> str:
    return call(job.kubectl, "status", job.name, exit_code=None)


def waits(job: Job) -> list[str]:
    """What the gates of the job's pods say in their logs: launcher and workers."""
    pods = [*job.pods(Role.LAUNCHER), *job.pods(Role.WORKER)]
    argvs = (job.kubectl.argv("logs", pod["metadata"]["name"], "--container=stage-gate") for pod in pods)
    told = (subprocess.run(argv, text=True, capture_output=True, check=False, timeout=30).stdout for argv in argvs)
    return [text for text in told if f"{SOURCE} is not staged to /data/digits yet" in text]


@contextmanager
def forwarded(kubectl: Kubectl, command: str) -> Iterator[None]:
    """While the command runs that the verb has printed, with the cluster's own kubectl."""
    program, *words = command.split()
    assert program == "kubectl"
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    with subprocess.Popen([str(kubectl.program), *words], env=environment, stdout=subprocess.PIPE, text=True) as tunnel:
        try:
            assert tunnel.stdout is not None
            assert "Forwarding from" in tunnel.stdout.readline()
            yield
        finally:
            tunnel.kill()


def scalars(url: str) -> list[str]:
    """The tags of all runs."""
    return [tag for tags in _read(f"{url}/data/plugin/scalars/tags").values() for tag in tags]


def curve(url: str) -> list[Any]:
    """The points of the loss, each a time, a step and a value."""
    (run,) = _read(f"{url}/data/plugin/scalars/tags")
    asked = urllib.parse.urlencode({"run": run, "tag": "train/loss"})
    points: list[Any] = _read(f"{url}/data/plugin/scalars/scalars?{asked}")
    return points


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)
