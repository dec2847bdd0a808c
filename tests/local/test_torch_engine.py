"""Real processes over torch.distributed under our launcher: a script with DistributedDataParallel, and no Horovod."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from testbed.local import forkserver
from testbed.local.training import Training, training
from tests.local.taken_samples import taken
from tests.local.torch_job import TorchJob

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]

SCRIPT = Path(__file__).with_name("train_ddp.py")
LENGTH = 303
SETTINGS = {"engine": "torch", "LENGTH": str(LENGTH), "MICRO": "20", "ALIKE": "1"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The same global batch on one worker, without a launcher: what resizes must not change."""
    return trained_alone(tmp_path_factory.mktemp("alone"), **SETTINGS, EPOCHS="9")


def trained_alone(folder: Path, **settings: str) -> Training:
    job = Training(folder, **settings, STEP_SECONDS="0")
    command = [*forkserver.python(), str(SCRIPT)]
    done = subprocess.run(command, check=False, env=job.environment, timeout=400, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return job


@pytest.mark.core
def test_one_ddp_object_lives_through_growth_a_kill_and_a_shrink(tmp_path: Path, undisturbed: Training) -> None:
    """Every sample of every epoch once, and the losses and weights of a run without resizes."""
    with training(tmp_path, **SETTINGS, EPOCHS="9", STEP_SECONDS="0.2") as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        job.kill("b")
        job.trains(2)
        job.offer("c")  # the eldest goes
        job.trains(1)
        job.offer("c", "d")
        job.trains(2)
        assert job.ends(600) == 0, job.said()

        steps, seen = taken(job.written("took"))
        assert seen == {epoch: Counter(range(LENGTH)) for epoch in range(9)}
        losses, alone = ({event["step"]: event["loss"] for event in each.events("step")} for each in (job, undisturbed))
        assert set(steps) == set(losses) == set(alone)
        for step, loss in losses.items():
            assert loss == pytest.approx(alone[step], abs=1e-4), step
        ends = job.written("end")
        (reference,) = undisturbed.written("end")
        assert [end["sum"] for end in ends] == [pytest.approx(reference["sum"], abs=1e-3)] * len(ends)


@pytest.mark.parametrize(
    ("kind", "micro"), [("static_graph", "50"), ("unused", "20"), ("comm_hook", "20"), ("compiled", "20")]
)
def test_what_ddp_is_told_goes_on_in_other_worlds(tmp_path: Path, kind: str, micro: str) -> None:
    """Each of DistributedDataParallel's own ways, with a survivor and a newcomer: the losses of one worker."""
    settings = {**SETTINGS, "KIND": kind, "MICRO": micro, "EPOCHS": "5"}
    (tmp_path / "alone").mkdir()
    alone = trained_alone(tmp_path / "alone", **settings)
    with training(tmp_path, **settings, STEP_SECONDS="0.2") as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        job.kill("b")
        job.trains(2)
        assert job.ends(600) == 0, job.said()
        losses, undisturbed = ({event["step"]: event["loss"] for event in each.events("step")} for each in (job, alone))
    assert losses == {step: pytest.approx(loss, abs=1e-4) for step, loss in undisturbed.items()}


SOLO = """\
import os
import time

import torch
from torch import distributed
import hvd_elastic as elastic

elastic.init()
assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
distributed.barrier()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

@elastic.run
def train(state):
    print(f"trains as {distributed.get_rank()} of {distributed.get_world_size()} from {state.step}", flush=True)
    while distributed.get_world_size() == 1 or not state.was_alone:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        state.was_alone |= distributed.get_world_size() == 1
        time.sleep(0.05)
        state.commit()

train(elastic.State(model=model, optimizer=optimizer, step=0, was_alone=False))
print(f"has {model.module.weight.sum().item()}", flush=True)
"""


def test_a_solo_standby_sets_itself_up_alone_and_joins_a_job_in_training(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SOLO)
    sizes = ("--workers", "1:2:2", "--resize", "2:1,6:2", "--standby", "solo")
    job = TorchJob(tmp_path, *sizes, "--", "python", str(script))
    try:
        job.says("trains as 1 of 2 from [1-9]")
        assert job.ends() == 0, job.said()
    finally:
        job.close()
    weights = re.findall(r"has (\S+)", job.said())
    assert len(weights) == 2
    assert weights[0] == weights[1]
