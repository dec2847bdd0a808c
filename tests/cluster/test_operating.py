"""A person's whole way with a job: submit it, look at it, change it, and take it away, by the verbs alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.mpijob.contract import ENV_EVENTS, Role
from testbed.cluster import inference, jobs
from testbed.cluster.jobs import PACED, Job
from testbed.cluster.site import RESULTS, Site, make_namespace, remove_namespace
from testbed.cluster.standing import DURABLE, SIZE, Scenario
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from testbed.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

WORKERS = 3


def run(kubectl: Kubectl, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A verb in the namespace of `kubectl`."""
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig), "HVD_ELASTIC_NAMESPACE": kubectl.namespace}
    argv = [sys.executable, "-m", "hvd_elastic.cli", *words]
    return subprocess.run(argv, input=given, text=True, capture_output=True, check=False, env=environment)


def failure(words: Sequence[str], done: subprocess.CompletedProcess[str]) -> str:
    return f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"


def call(kubectl: Kubectl, *words: str, given: str = "", exit_code: int | None = 0) -> str:
    """What a verb prints to stdout."""
    done = run(kubectl, *words, given=given)
    assert exit_code is None or done.returncode == exit_code, failure(words, done)
    return done.stdout


def told(kubectl: Kubectl, *words: str, exit_code: int | None = 0) -> Any:
    done = run(kubectl, *words, "-o", "json")
    assert exit_code is None or done.returncode == exit_code, failure(words, done)
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise AssertionError(failure(words, done)) from error


@pytest.fixture
def here(cluster: Site) -> Iterator[Kubectl]:
    jobs.priority_classes(cluster)
    yield make_namespace(cluster, "operating")
    remove_namespace(cluster, "operating")


def described(site: Site, kubectl: Kubectl, **keys: Any) -> str:
    description = jobs.describe(
        site,
        kubectl,
        "toy",
        PACED,
        workers=jobs.workers((1, WORKERS, WORKERS)),
        node_labels={"kubernetes.io/hostname": "spot"},
        checkpoint=DURABLE,
        output={"claim": RESULTS},
        env={ENV_EVENTS: "/output/events"},
        **keys,
    )
    return str(yaml.safe_dump(description))


@pytest.mark.core
def test_from_submit_to_delete(cluster: Site, here: Kubectl, tmp_path: Path) -> None:
    shared = jobs.share_results(cluster, here)
    path = tmp_path / "toy.yaml"
    path.write_text(described(cluster, here))
    assert call(here, "submit", str(path), "--dry-run", "server", "-o", "name").splitlines()
    assert not here.find("mpijob", "toy")
    call(here, "submit", str(path), "--wait")
    job = Job(kubectl=here, name="toy", shared=shared)
    job.wait_size(WORKERS)
    call(here, "submit", str(path))
    call(here, "submit", str(path), "--diff")
    status = told(here, "status", "toy", "--wait-for", "training")
    assert (status["state"], status["size"], status["max_workers"]) == ("training", WORKERS, WORKERS)
    assert [one["name"] for one in told(here, "list")] == ["toy"]
    assert "steps" in call(here, "logs", "toy", "--tail", "50") or job.account.steps

    call(here, "scale", "toy", "1", "--wait")
    job.wait_size(1)
    assert told(here, "status", "toy")["wanted"] == 1
    call(here, "scale", "toy", str(WORKERS), "--wait")
    job.wait_size(WORKERS)

    before = _launcher(job)
    call(here, "restart", "toy", "--yes")
    waiting.until("another launcher", lambda: _launcher(job) not in {"", before}, within_seconds=60, every_seconds=0.5)
    job.wait_size(WORKERS, since=time.time())
    assert not job.account.skipped()
    assert told(here, "status", "toy", "--wait-for", "training")["restarts_used"] == 0

    call(here, "suspend", "toy")
    waiting.until("no worker is left", lambda: not job.pods(Role.WORKER), within_seconds=60, every_seconds=0.5)
    assert told(here, "status", "toy", exit_code=15)["state"] == "suspended"
    call(here, "delete", "toy", "--yes")
    waiting.until("the job is gone", lambda: not here.find("mpijob", "toy"), within_seconds=60, every_seconds=0.5)
    call(here, "status", "toy", exit_code=2)


def test_suspend_and_resume(cluster: Site, here: Kubectl, tmp_path: Path) -> None:
    shared = jobs.share_results(cluster, here)
    path = tmp_path / "toy.yaml"
    path.write_text(described(cluster, here))
    job = Job(kubectl=here, name="toy", shared=shared)
    call(here, "submit", str(path), "--wait")
    job.wait_steps(10)
    call(here, "suspend", "toy")
    waiting.until("no worker is left", lambda: not job.pods(Role.WORKER), within_seconds=60, every_seconds=0.5)
    done = job.account.steps[-1]["step"]
    resumed = time.time()
    call(here, "resume", "toy")
    assert told(here, "status", "toy", "--wait-for", "training", "--timeout", "120")["state"] == "training"
    job.wait_size(WORKERS, since=resumed)
    assert job.account.since(resumed).steps[0]["step"] <= done + 1
    assert not job.account.skipped()


@pytest.mark.core
@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_what_is_told_of_a_job_that_is_preempted(cluster: Site, scenario: Scenario) -> None:
    """Why it is smaller, who took it, what it cost; and later that all of it is back."""
    kubectl, job = scenario.kubectl, scenario.job
    load = inference.deploy(cluster, kubectl)
    load.scale(2)
    load.wait(2)
    job.wait_size(SIZE - 2)

    def says_who() -> bool:
        status = told(kubectl, "status", job.name, exit_code=None)
        taken = [one for one in status["workers"] if f"preempted by {kubectl.namespace}/inference-" in _reasons(one)]
        return status["size"] == SIZE - 2 and len(taken) == 2

    waiting.until("status says who took the GPUs", says_who, within_seconds=60, every_seconds=1)
    story = [one["what"] for one in told(kubectl, "events", job.name)]
    assert sum(f"preempted by {kubectl.namespace}/inference-" in what for what in story) >= 2, story
    back = scenario.timeline.mark("given back")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    waiting.until(
        "status says that it is whole", lambda: told(kubectl, "status", job.name)["size"] == SIZE, within_seconds=60
    )
    bill = told(kubectl, "cost", job.name)
    now = time.time()
    held, pods = audited(scenario.timeline, job.name, until=now)
    slack = 2.0 * pods + 10.0
    assert bill["gpu_seconds"] == pytest.approx(held, abs=slack), "each time of the API server is a whole second"
    assert bill["preemptions"] >= 2
    assert bill["lent_gpu_seconds"] > 0


@pytest.mark.parametrize("standing", ["launch"], indirect=True)
def test_watch_tells_what_happens(cluster: Site, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """As plain lines without a terminal, and on one screen at a terminal of 80 by 24."""
    kubectl, job = scenario.kubectl, scenario.job
    monkeypatch.setenv("KUBECONFIG", str(kubectl.kubeconfig))
    monkeypatch.setenv("HVD_ELASTIC_NAMESPACE", kubectl.namespace)
    argv = [sys.executable, "-m", "hvd_elastic.cli", "watch", job.name]
    screen = Terminal("watch", job.name)
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as plain:
        try:
            assert plain.stdout is not None
            assert f"training with {SIZE} of [1..{SIZE}] workers" in plain.stdout.readline()
            screen.sees(f"training with {SIZE} of [1..{SIZE}] workers")
            load = inference.deploy(cluster, kubectl)
            load.scale(1)
            words = f"leaves: preempted by {kubectl.namespace}/inference-"
            assert any(words in line for line in plain.stdout), plain.communicate()[1]
            screen.sees("preempted by")
            screen.sees(f"training with {SIZE - 1} of")
            given_back = time.time()
            load.scale(0)
            job.wait_size(SIZE, since=given_back)
            assert any(f"training with {SIZE} of" in line for line in plain.stdout)
            plain.send_signal(signal.SIGINT)
            assert "the jobs go on" in plain.communicate(timeout=30)[1]
            for frame in frames(screen.said):
                assert len(frame) <= 24, frame
                assert max(map(len, frame)) <= 80, frame
            screen.press("q")
            assert screen.process.wait(timeout=30) == 0
        finally:
            screen.close()
            plain.kill()
    assert told(kubectl, "status", job.name)["state"] == "training"


def frames(said: str) -> list[list[str]]:
    """The lines of each screen that a live view drew: it goes home before each."""
    drawn = (re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text) for text in said.split("\x1b[H")[1:])
    return [text.replace("\r", "").split("\n") for text in drawn]


def audited(timeline: Timeline, job: str, *, until: float) -> tuple[float, int]:
    """Seconds that worker pods had a node, by what the API server told of each; and how many pods there were.

    Each has one GPU.
    """
    bound, ended = dict[str, float](), dict[str, float]()
    for seen in list(timeline.pods):
        if seen.pod.startswith(f"{job}-worker-") and seen.node:
            bound.setdefault(seen.uid, seen.time)
            if seen.change == "DELETED" or seen.phase in {"Succeeded", "Failed"}:
                ended.setdefault(seen.uid, seen.time)
    return sum(ended.get(uid, until) - since for uid, since in bound.items()), len(bound)


def _reasons(worker: dict[str, Any]) -> str:
    return f"{worker['why']} {worker['before']}"


def _launcher(job: Job) -> str:
    running = [pod for pod in job.pods(Role.LAUNCHER) if not pod["metadata"].get("deletionTimestamp")]
    return str(running[-1]["metadata"]["uid"]) if running else ""
