"""`hvd-elastic run` with scripts whose workers come to differ: by the script's doing, or by a fault of one of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit

pytestmark = pytest.mark.process

STORED_EVERY = 10
STEPS = 60
SCRIPT = f"""\
import os, sys
from pathlib import Path
import torch
import horovod.torch as hvd
import hvd_elastic as elastic

elastic.init()
how, folder = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
if how != "plain":
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

@elastic.run
def train(state):
    while state.step < {STEPS}:
        optimizer.zero_grad()
        torch.manual_seed(100 * state.step + hvd.rank())
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        state.step += 1
        flipped = folder / "flipped"
        if how == "flip" and state.step == 25 and hvd.rank() == hvd.size() - 1 and not flipped.exists():
            flipped.touch()
            with torch.no_grad():
                model[1].weight.view(torch.int32)[0, 3] ^= 1 << 28
        state.commit()
        with (folder / "steps").open("a") as steps:
            print(state.step, hvd.rank(), hvd.size(), file=steps)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    (folder / f"weights-{{hvd.rank()}}").write_text(repr(weights.tolist()))

train(elastic.State(model=model, optimizer=optimizer, step=0))
"""


def ended(folder: Path, how: str, *options: str, **env: str) -> "subprocess.CompletedProcess[str]":
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(SCRIPT)
    return subprocess.run(
        [
            *(sys.executable, "-m", "hvd_elastic.cli", "run", *options),
            *("--", "python", str(folder / "train.py"), how, str(folder)),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HVD_ELASTIC_CHECKPOINT_STEPS": str(STORED_EVERY), **env},
    )


def weights(folder: Path) -> set[str]:
    return {file.read_text() for file in folder.glob("weights-*")}


@pytest.mark.parametrize("launcher", [pytest.param("launch", marks=pytest.mark.core), "horovodrun"])
def test_workers_that_nothing_keeps_alike_end_the_job(launcher: str, tmp_path: Path) -> None:
    job = ended(tmp_path, "plain", "--workers", "2", "--launcher", launcher)
    said = job.stdout + job.stderr
    assert job.returncode == Exit.SCRIPT_MISTAKE, said
    assert "workers differ at step 1, and have since the beginning: model.0.weight of rank 1 is up to" in said
    assert "state.optimizer is a plain optimizer" in said


def test_a_job_may_only_be_warned(tmp_path: Path) -> None:
    job = ended(tmp_path, "plain", "--workers", "2", HVD_ELASTIC_REPLICAS="warn")
    said = job.stdout + job.stderr
    assert job.returncode == Exit.OK, said
    assert said.count("workers differ") == 1
    assert len(weights(tmp_path)) == 2


@pytest.mark.core
def test_a_flipped_bit_of_one_worker_of_three_costs_its_place(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    assert ended(undisturbed, "none", "--workers", "2").returncode == Exit.OK
    folder = tmp_path / "disturbed"
    job = ended(folder, "flip", "--workers", "2:3:3", "--checkpoint", f"file://{tmp_path}/kept")
    said = job.stdout + job.stderr
    assert job.returncode == Exit.OK, said
    assert "workers differ at step 30, and were alike at step 20: model.1.weight of rank 2 is up to" in said
    assert "rank 2 is left out, and all others go back to the newest durable checkpoint" in said
    assert f"exit code {int(Exit.WORKER_DIFFERS)}" in said
    sizes = re.findall(r"^(\d+) \d+ (\d+)$", (folder / "steps").read_text(), re.MULTILINE)
    assert {size for step, size in sizes if int(step) == STEPS} == {"2"}, "no other process in its place"
    assert sum(step == "25" for step, _ in sizes) == 5, "by three, and by two once more"
    assert len(weights(folder)) == 1


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_of_two_workers_both_go_back(launcher: str, tmp_path: Path) -> None:
    job = ended(tmp_path, "flip", "--workers", "2", "--launcher", launcher, "--checkpoint", f"file://{tmp_path}/kept")
    said = job.stdout + job.stderr
    assert job.returncode == Exit.OK, said
    assert "all go back to the newest durable checkpoint" in said
    assert len(weights(tmp_path)) == 1
    alone = tmp_path / "undisturbed"
    assert ended(alone, "none", "--workers", "2", "--launcher", launcher).returncode == Exit.OK
    assert weights(alone) == weights(tmp_path), "as if no bit had flipped"
