"""What a script that is over in a moment, or never runs, leaves at its launcher for the sidecar."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

JOB = Path(__file__).with_name("launcher_reports_job.py")

SCRIPT = """\
import sys
import torch
import horovod.torch as hvd
import hvd_elastic as elastic

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
own = sys.argv[1] == "own"
state = (elastic.State if own else hvd.elastic.TorchState)(model=model, optimizer=optimizer, epoch=0)

@hvd.elastic.run
def train_stock(state):
    for _ in range(6):
        state.commit()

@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(3):
        for step, batch in enumerate(state.batches(range(8), global_batch_size=4)):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            state.commit(loss=float(step))
    state.log(accuracy=torch.tensor(0.75))

(train if own else train_stock)(state)
"""


@pytest.mark.parametrize(
    ("launcher", "state"),
    [
        ("launch", "own"),
        ("launch", "stock"),
        ("horovodrun", "own"),
        ("horovodrun", "stock"),
    ],
)
def test_the_last_figures_of_a_script_that_is_over_in_a_moment(launcher: str, state: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    left = run(tmp_path, launcher, "2", sys.executable, str(script), state)
    assert left["code"] == 0, (tmp_path / "out").read_text()
    figures = left["figures"]
    assert (figures["step"], figures["size"]) == (6, 2)
    assert left["registered"] is (state == "stock"), "of a script that tells its steps the first step is the sign"
    if state == "own":
        assert (figures["loss"], figures["metrics"]) == (1.0, {"accuracy": 0.75})
        assert figures["samples"] == "train, epochs 0-2: each of 8 samples once"


@pytest.mark.parametrize("launcher", [pytest.param("launch", marks=pytest.mark.core), "horovodrun"])
def test_the_last_line_of_a_command_that_never_runs(launcher: str, tmp_path: Path) -> None:
    left = run(tmp_path, launcher, "1", "pyhton")
    assert left["code"] == 127, (tmp_path / "out").read_text()
    assert left["sentence"] == "pyhton: No such file or directory"
    assert not left["registered"]


def run(folder: Path, *words: str) -> dict[str, Any]:
    """Run a job to its end; return what its launcher has left."""
    argv = [sys.executable, str(JOB), str(folder), *words]
    environment = {**os.environ, "PYTHONPATH": str(JOB.parents[2])}
    done = subprocess.run(argv, text=True, capture_output=True, check=False, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    left: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return left
