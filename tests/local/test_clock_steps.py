"""NTP sets the wall clock right under a launcher and its workers: forward by an hour, and back by one."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.local.harness import Job
from testbed.local.harness import job as make_job
from testbed.local.stepped_clock import SteppedClock
from tests.local.test_supervisor import A, B, C, Supervised

pytestmark = pytest.mark.process


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path)


@pytest.fixture
def job(tmp_path: Path, clock: SteppedClock) -> Iterator[Job]:
    with make_job(tmp_path) as made:
        made.environment |= clock.environment
        yield made


def trains_on(job: Job, *names: str) -> None:
    """Wait until these take steps together, and more than one of them. Their times say nothing of it."""
    seen = len(job.events())

    def together() -> bool:
        last = [event for event in job.events()[seen:] if event["event"] == "step"][-4 * len(names) :]
        return {event["name"] for event in last} == set(names) and {event["size"] for event in last} == {len(names)}

    job.until(together, f"steps of {names}", 120.0)


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_job_trains_and_changes_its_size_through_a_step_of_the_clock(
    job: Job, clock: SteppedClock, seconds: int
) -> None:
    job.hosts("a", "b")
    job.launch("-np", "2", "--min-np", "1")
    trains_on(job, "a:0", "b:0")
    before = job.events("step")[-1]["time"]
    clock.set_on(seconds)
    trains_on(job, "a:0", "b:0")
    assert abs(job.events("step")[-1]["time"] - before - seconds) < 600, "the workers were told the new time"
    job.hosts("a", "b", "c")
    trains_on(job, "a:0", "b:0", "c:0")
    job.kill("b:0")
    trains_on(job, "a:0", "c:0")
    clock.set_on(0)
    job.hosts("a", "c", "d")
    trains_on(job, "a:0", "c:0", "d:0")
    started = {event["name"] for event in job.events("started")}
    assert len(job.events("started")) == len(started), "no process was taken for one that hangs"
    job.check_no_step_was_lost()


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_horovodrun_waits_for_hosts_through_a_step_of_the_clock(job: Job, clock: SteppedClock, seconds: int) -> None:
    """With its own time-outs, an hour forward ends a wait of ten minutes, and with it the process that waits."""
    job.__class__ = Supervised
    assert isinstance(job, Supervised)
    job.offer(A, B)
    job.supervise("-np", "2", "--min-np", "2", "--elastic-timeout", "600")
    trains_on(job, f"{A}:0", f"{B}:0")
    job.offer(A)
    job.until(lambda: job.events("notified"), "horovodrun knows that a host has gone")
    job.kill(f"{B}:0")
    job.until(lambda: job.events("asks", f"{A}:0") and len(job.left()) == 1, "the survivor waits for its place")
    clock.set_on(seconds)
    job.offer(A, C, pods="first")
    trains_on(job, f"{A}:0", f"{C}:0")
    assert len(job.events("started", f"{A}:0")) == 1, "its process went on"


SCRIPT = """\
import time
import horovod.torch as hvd
import torch

import hvd_elastic as elastic

elastic.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
state = elastic.State(model=model, optimizer=optimizer, step=0)

@elastic.run
def train(state):
    while state.step < 10_000:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        if hvd.rank() == 0:
            print(f"step {state.step} size {hvd.size()} at {time.time()}", flush=True)
        state.commit()
        time.sleep(0.02)

train(state)
"""


def test_pods_train_resize_and_checkpoint_through_steps_of_the_clock(tmp_path: Path, clock: SteppedClock) -> None:
    """Entry points, standbys, launcher and training processes: an hour on, then two back, then right."""
    (tmp_path / "train.py").write_text(SCRIPT)
    resized = ["--workers", "1:2:2", "--resize", "8:1,16:2,36:1", "--checkpoint", (tmp_path / "checkpoints").as_uri()]
    with subprocess.Popen(
        [sys.executable, "-m", "hvd_elastic.cli", "run", *resized, "--", "python", str(tmp_path / "train.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **clock.environment, "OMP_NUM_THREADS": "1"},
    ) as job:
        assert job.stdout is not None
        printed, sizes = [], [0]
        steps = iter((3600, -3600, 0))
        for line in job.stdout:
            printed.append(line)
            if (found := re.search(r"step \d+ size (\d) at", line)) and int(found[1]) != sizes[-1]:
                sizes.append(int(found[1]))
                clock.set_on(next(steps, 0))  # in each world: the resize after it is told by another clock
            if sizes == [0, 2, 1, 2, 1]:
                break
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=120)
    said = "".join(printed)
    assert sizes == [0, 2, 1, 2, 1], said
    times = [float(each) for each in re.findall(r"at (\d+\.\d+)", said)]
    assert max(later - earlier for earlier, later in pairwise(times)) > 3000, "the processes were told the new time"
    counted = [int(each) for each in re.findall(r"step (\d+) size", said)]
    assert counted == list(range(1, len(counted) + 1)), "no step was done again"
    assert list((tmp_path / "checkpoints").rglob("*manifest*"))
