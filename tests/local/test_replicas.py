"""`hvd-elastic run` with scripts whose workers come to differ: by the script's doing, or by a fault of one of them."""

import re
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit
from testbed.local import script_run

pytestmark = pytest.mark.process

STORED_EVERY = 10
STEPS = 60
SCRIPT = f"""\
import os, signal, sys
from pathlib import Path
import torch
import hvd_elastic as elastic
from hvd_elastic.trainer.collectives.this_world import WORLD
from testbed.local.either_engine import averaging

elastic.init()
how, folder = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
called, optimizer = (model, optimizer) if how == "plain" else averaging(model, optimizer)

scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
more = {{"scheduler": scheduler}} if how == "plateau" else {{}}
steps_here = 0

@elastic.run
def train(state):
    global steps_here
    while state.step < {STEPS}:
        optimizer.zero_grad()
        torch.manual_seed(100 * state.step + WORLD.rank())
        loss = called(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        if how == "plateau":
            scheduler.step(loss.item())
        state.step += 1
        steps_here += 1
        if how == "counter":
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * 0.9**steps_here
            if (state.step, WORLD.rank(), WORLD.size(), steps_here) == (10, 1, 2, 10):
                os.kill(os.getpid(), signal.SIGKILL)
            while state.step == 12 and WORLD.size() == 1:
                state.commit()
        flipped = folder / "flipped"
        if how == "flip" and state.step == 25 and WORLD.rank() == WORLD.size() - 1 and not flipped.exists():
            flipped.touch()
            with torch.no_grad():
                model[1].weight.view(torch.int32)[0, 3] ^= 1 << 28
        state.commit()
        with (folder / "steps").open("a") as steps:
            print(state.step, WORLD.rank(), WORLD.size(), file=steps)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    (folder / f"weights-{{WORLD.rank()}}").write_text(repr(weights.tolist()))

train(elastic.State(model=model, optimizer=optimizer, step=0, **more))
"""


def ended(folder: Path, how: str, *options: str, **environment: str) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    environment = {"HVD_ELASTIC_CHECKPOINT_STEPS": str(STORED_EVERY), **environment}
    return script_run.ended(script_run.start(folder, SCRIPT, how, options=options, **environment))


def weights(folder: Path) -> set[str]:
    return {file.read_text() for file in folder.glob("weights-*")}


@pytest.mark.parametrize(
    ("launcher", "engine"),
    [pytest.param("launch", "horovod", marks=pytest.mark.core), ("horovodrun", "horovod"), ("launch", "torch")],
)
def test_workers_that_nothing_keeps_alike_end_the_job(launcher: str, engine: str, tmp_path: Path) -> None:
    code, said = ended(tmp_path, "plain", "--workers", "2", "--launcher", launcher, "--engine", engine)
    assert code == Exit.SCRIPT_MISTAKE, said
    assert "workers differ at step 1, and have since the beginning: model.0.weight of rank 1 is up to" in said
    assert "state.optimizer is a plain optimizer" in said
    way_out = (
        "wrap it with hvd.DistributedOptimizer" if engine == "horovod" else "wrap the model in DistributedDataParallel"
    )
    assert way_out in said


@pytest.mark.parametrize(
    ("how", "since"), [("plateau", "and were alike at step"), ("counter", "since one of them has joined")]
)
def test_rates_that_each_worker_makes_for_itself_end_the_job(how: str, since: str, tmp_path: Path) -> None:
    code, said = ended(tmp_path, how, "--workers", "1:2:2")
    assert code == Exit.SCRIPT_MISTAKE, said
    assert "workers differ at step" in said
    assert since in said, said


def test_a_job_may_only_be_warned(tmp_path: Path) -> None:
    code, said = ended(tmp_path, "plain", "--workers", "2", HVD_ELASTIC_REPLICAS="warn")
    assert code == Exit.OK, said
    assert said.count("workers differ") == 1
    assert len(weights(tmp_path)) == 2


@pytest.mark.parametrize("engine", ["horovod", "torch"])
def test_a_flipped_bit_of_one_worker_of_three_costs_its_place(engine: str, tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    assert ended(undisturbed, "none", "--workers", "2", "--engine", engine)[0] == Exit.OK
    folder = tmp_path / "disturbed"
    store = ("--checkpoint", f"file://{tmp_path}/kept")
    code, said = ended(folder, "flip", "--workers", "2:3:3", "--engine", engine, *store)
    assert code == Exit.OK, said
    assert "workers differ at step 30, and were alike at step 20: model.1.weight of rank 2 is up to" in said
    assert "rank 2 is left out, and all others go back to the newest durable checkpoint" in said
    assert f"exit code {int(Exit.WORKER_DIFFERS)}" in said
    sizes = re.findall(r"^(\d+) \d+ (\d+)$", (folder / "steps").read_text(), re.MULTILINE)
    assert {size for step, size in sizes if int(step) == STEPS} == {"2"}, "no other process in its place"
    assert sum(step == "25" for step, _ in sizes) == 5, "by three, and by two once more"
    assert len(weights(folder)) == 1


@pytest.mark.parametrize(
    ("launcher", "engine"), [("launch", "horovod"), ("horovodrun", "horovod"), ("launch", "torch")]
)
def test_of_two_workers_both_go_back(launcher: str, engine: str, tmp_path: Path) -> None:
    options = ("--workers", "2", "--launcher", launcher, "--engine", engine)
    code, said = ended(tmp_path, "flip", *options, "--checkpoint", f"file://{tmp_path}/kept")
    assert code == Exit.OK, said
    assert "all go back to the newest durable checkpoint" in said
    assert len(weights(tmp_path)) == 1
    alone = tmp_path / "undisturbed"
    assert ended(alone, "none", *options)[0] == Exit.OK
    assert weights(alone) == weights(tmp_path), "as if no bit had flipped"
