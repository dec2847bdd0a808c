"""What real training says about itself, asked over the ready ports of local hosts."""

import signal
from pathlib import Path

import psutil
import pytest

from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.worker_report import read_report
from hvd_elastic.mpijob.contract import ENV_READY_ADDRESS
from tests.hvd_elastic.worker.pods import eventually
from tests.local.test_run import mark, start

pytestmark = pytest.mark.process

__all__ = ["mark"]

SCRIPT = """\
import time
import torch
import horovod.torch as hvd
from hvd_elastic import trainer as elastic

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
state = elastic.State(model=model, optimizer=optimizer)

@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(1):
        for batch in state.batches(range(10**9), global_batch_size=4, shuffle=False):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
            state.commit(loss=loss)

train(state)
"""


@pytest.mark.core
def test_rank_0_tells_how_it_trains_through_a_resize(tmp_path: Path, mark: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    checkpoints = ["--checkpoint", f"file://{tmp_path}/checkpoints", "--checkpoint-every", "1"]
    command = ["python", str(tmp_path / "train.py")]
    job = start(mark, "--workers", "1:2:2", "--resize", "5:1", *checkpoints, "--", *command)
    try:
        found = eventually(lambda: job.poll() is not None or figures(mark, size=1), "the figures of one worker")
    finally:
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=60)[0]
    assert isinstance(found, TrainingFigures), output
    pause = found.pauses[0]  # a busy machine may take the other host for lost, too
    assert (pause.from_size, pause.to_size, pause.repeated) == (2, 1, 0)
    assert 0 < pause.step < found.step
    assert pause.unix < found.unix
    assert 0 <= found.durable_step <= found.step
    assert found.loss is not None
    assert 0 < (found.steps_per_second or 0) < 50, "a step sleeps 20 ms"
    assert found.epoch == 0


def test_why_nothing_gets_durable_is_told_while_training_goes_on(tmp_path: Path, mark: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    folder = tmp_path / "checkpoints"
    checkpoints = ["--checkpoint", f"file://{folder}", "--checkpoint-every", "1"]
    job = start(mark, "--workers", "1:1:1", *checkpoints, "--", "python", str(tmp_path / "train.py"))
    try:
        eventually(lambda: job.poll() is not None or figures(mark, size=1), "a durable checkpoint")
        folder.rename(tmp_path / "aside")
        folder.write_text("no folder")

        def failing() -> TrainingFigures | None:
            found = figures(mark, size=1)
            return found if found and found.save_error else None

        found = eventually(lambda: job.poll() is not None or failing(), "the error")
        folder.unlink()
        (tmp_path / "aside").rename(folder)
    finally:
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=60)[0]
    assert isinstance(found, TrainingFigures), output
    assert str(folder) in found.save_error
    assert found.durable_step >= 0


def figures(mark: str, *, size: int) -> TrainingFigures | None:
    """The figures of whoever has some, once they are whole and those of a world of this size."""
    found = [each for address in addresses(mark) if (each := read_report(address, timeout_seconds=5.0).figures)]
    assert len(found) <= 1, "one worker has rank 0"
    return next((f for f in found if f.size == size and f.steps_per_second and f.durable_step >= 0), None)


def addresses(mark: str) -> set[str]:
    """Where the job's local hosts listen."""
    found = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        if environment.get("HVD_ELASTIC_TEST_MARK") == mark and ENV_READY_ADDRESS in environment:
            found.add(environment[ENV_READY_ADDRESS])
    return found
