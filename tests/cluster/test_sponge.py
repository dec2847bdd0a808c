"""Training soaks up what inference leaves, gives it back when inference asks, and loses no step by it."""

import math
import re
import subprocess
import sys

import pytest

from hvd_elastic.mpijob.contract import Engine, Role
from testbed.cluster import inference, jobs
from testbed.cluster.faults import kill_training
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, SAMPLES, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

STEPS_PER_EPOCH = math.ceil(SAMPLES / 60)
"""60 is the script's global batch."""


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_sponge(cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str) -> None:
    """The whole of it, a job's life long: what it gives is accuracy as if nothing had happened."""
    cluster.local()
    job = start(cluster, namespace, launcher)
    _soak_up(cluster, namespace, timeline, job)
    _undisturbed_but_for_speed(job, Engine.HOROVOD)


@pytest.mark.core
def test_sponge_of_torch(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    """The same over torch.distributed; and a process is killed."""
    cluster.local()
    job = start(cluster, namespace, "launch", engine=str(Engine.TORCH))
    _soak_up(cluster, namespace, timeline, job)
    killed = timeline.mark("kill -9 of a training process")
    assert kill_training(job, job.pods(Role.WORKER)[1]["metadata"]["name"])
    job.wait_smaller(4, since=killed)
    job.wait_size(4, since=killed)
    _undisturbed_but_for_speed(job, Engine.TORCH)


def _soak_up(cluster: Site, namespace: Kubectl, timeline: Timeline, job: Job) -> None:
    load = inference.deploy(cluster, namespace)
    job.wait_size(4)
    workers = {pod["metadata"]["uid"] for pod in job.pods(Role.WORKER)}

    timeline.mark("inference 0 -> 2")
    load.scale(2)
    load.wait(2)
    job.wait_size(2)
    job.wait_steps(10)

    back = timeline.mark("inference 2 -> 0")
    load.scale(0)
    job.wait_size(4, since=back)
    job.wait_steps(10)
    assert len(workers & {pod["metadata"]["uid"] for pod in job.pods(Role.WORKER)}) == 2


def _undisturbed_but_for_speed(job: Job, engine: Engine) -> None:
    job.finish()
    nothing_lost(job.account, ended=True)
    assert "blacklist" not in job.log().lower()
    steps, accuracy = _result(job.log())
    same_steps, undisturbed = _undisturbed(steps // STEPS_PER_EPOCH, engine)
    assert same_steps == steps
    assert accuracy == pytest.approx(undisturbed, abs=0.02)


def _undisturbed(epochs: int, engine: Engine) -> tuple[int, float]:
    """Steps and accuracy of the same training by one process on this machine that nothing takes away."""
    training = [sys.executable, str(jobs.SCRIPTS / "paced.py"), "--pace=0", f"--epochs={epochs}", "--stop=/nonexistent"]
    flags = [f"--engine={engine}", "--workers=1"]
    command = [sys.executable, "-m", "hvd_elastic.cli", "run", *flags, "--", *training]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return _result(done.stdout)


def _result(log: str) -> tuple[int, float]:
    """Steps and accuracy as the script has printed them at its end."""
    said = re.findall(r"steps (\d+) accuracy ([\d.]+)", log)
    assert said, log
    steps, accuracy = said[-1]
    return int(steps), float(accuracy)
