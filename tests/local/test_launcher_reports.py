"""What a script that is over in a moment, or never runs, leaves at its launcher for the sidecar."""

import sys
from pathlib import Path

import pytest

from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.launcher.launcher_pods import last_word
from hvd_elastic.discovery.sidecar.record.launcher_reports import has_registered, last_figures
from hvd_elastic.local.local_job import local_cluster, local_job, warm_up
from hvd_elastic.mpijob.job_reader import read_job

pytestmark = pytest.mark.process

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
        pytest.param("launch", "own", marks=pytest.mark.core),
        ("launch", "stock"),
        ("horovodrun", "own"),
        ("horovodrun", "stock"),
    ],
)
def test_the_last_figures_of_a_script_that_is_over_in_a_moment(launcher: str, state: str, tmp_path: Path) -> None:
    left, registered = run(launcher, state, tmp_path)
    assert left is not None
    assert (left.step, left.size) == (6, 2)
    assert registered is (state == "stock"), "of a script that tells its steps the first step is the sign"
    if state == "own":
        assert (left.loss, left.metrics) == (1.0, {"accuracy": 0.75})
        assert left.samples == "train, epochs 0-2: each of 8 samples once"


@pytest.mark.parametrize("launcher", [pytest.param("launch", marks=pytest.mark.core), "horovodrun"])
def test_the_last_line_of_a_command_that_never_runs(launcher: str, tmp_path: Path) -> None:
    spec = read_job(None, {"name": "typo", "workers": 1, "command": ["pyhton"], "launcher": launcher, "image": "none"})
    with (tmp_path / "out").open("w") as out, local_cluster(spec) as cluster:
        warm_up(cluster, spec, print)
        with local_job(spec, cluster, stdout=out.fileno()) as job:
            assert job.wait(120.0) == 127, (tmp_path / "out").read_text()
        assert last_word(cluster.folder).sentence == "pyhton: No such file or directory"
        assert not has_registered(cluster.folder)


def run(launcher: str, state: str, folder: Path) -> tuple[TrainingFigures | None, bool]:
    """Run the script to its end; return what the launcher's RUN_DIR has then."""
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "train.py"), state]
    given = {"name": "brief", "workers": 2, "command": command, "launcher": launcher, "image": "none"}
    spec = read_job(None, given)
    with (folder / "out").open("w") as out, local_cluster(spec) as cluster:
        warm_up(cluster, spec, print)
        with local_job(spec, cluster, stdout=out.fileno()) as job:
            assert job.wait(120.0) == 0, (folder / "out").read_text()
        return last_figures(cluster.folder), has_registered(cluster.folder)
