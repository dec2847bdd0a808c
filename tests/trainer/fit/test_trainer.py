"""`Trainer` compared with the same training in plain PyTorch: resizes, restarts, precisions, over each engine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS, ENV_TENSORBOARD
from hvd_elastic.trainer.data.sampler import SampleOrder
from hvd_elastic.trainer.fit.best_model import KeepBest
from hvd_elastic.trainer.fit.early_stop import EarlyStop
from hvd_elastic.trainer.fit.tensorboard_writer import TensorBoardWriter
from hvd_elastic.trainer.fit.trainer import Trainer
from hvd_elastic.trainer.fit.trainer_checks import TrainerError, check_measured, check_scheduler
from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation, Evaluation, Reporting
from testbed.local import forkserver
from testbed.local.training import ENGINES, HOSTS, Training, training
from tests.trainer.fit.train_by_trainer import DECAY, LENGTH, loss, problem

SCRIPT = Path(__file__).with_name("train_by_trainer.py")
STEPS_AN_EPOCH = -(-LENGTH // 32)


def by_hand(epochs: int, clip_norm: float | None = None, schedule_per: str = "epoch") -> tuple[list[float], float]:
    """Train with plain PyTorch. Returns the weights and the loss over all data."""
    data, model = problem()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, DECAY[schedule_per], 0.5)
    inputs, targets = data.tensors
    for epoch in range(epochs):
        order = SampleOrder(LENGTH, seed=1, epoch=epoch, shuffle=True)
        indices = torch.from_numpy(order.at(np.arange(LENGTH)))
        for start in range(0, LENGTH, 32):
            chosen = indices[start : start + 32]
            optimizer.zero_grad()
            loss(model, (inputs[chosen], targets[chosen])).backward()  # type: ignore[no-untyped-call]
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            if schedule_per == "step":
                scheduler.step()
        if schedule_per == "epoch":
            scheduler.step()
    with torch.no_grad():
        final = float(loss(model, (inputs, targets)))
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(), final


def alone(folder: Path, engine: str = ENGINES[0], **environment: str) -> dict[str, Any]:
    """Train in one process without a launcher. Returns its results."""
    job = Training(folder, engine=engine, **environment)
    done = subprocess.run(
        [*forkserver.python(), str(SCRIPT)], env=job.environment, check=False, timeout=240, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return results(job)[-1]


def results(job: Training) -> list[dict[str, Any]]:
    paths = sorted(job.log.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [json.loads(path.read_text()) for path in paths]


def close(left: list[float], right: list[float]) -> bool:
    return torch.allclose(torch.tensor(left), torch.tensor(right), rtol=1e-3, atol=1e-4)


over_each_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.mark.core
@pytest.mark.process
@over_each_engine
@pytest.mark.parametrize(
    ("environment", "clip_norm"),
    [({}, None), ({"MICRO": "10"}, None), ({"CLIP": "0.5", "MICRO": "10"}, 0.5), ({"COMMIT_EVERY": "4"}, None)],
    ids=["plain", "accumulated", "clipped and accumulated", "rare commits"],
)
def test_it_trains_like_plain_pytorch(
    tmp_path: Path, engine: str, environment: dict[str, str], clip_norm: float | None
) -> None:
    found = alone(tmp_path, engine, **environment)
    weights, final = by_hand(3, clip_norm)
    assert close(found["weights"], weights)
    assert found["evaluation"]["loss"] == pytest.approx(final, rel=1e-3)
    assert found["samples"] == [LENGTH, 0, 0]


@pytest.mark.process
def test_a_scheduler_may_step_with_the_optimizer(tmp_path: Path) -> None:
    found = alone(tmp_path, SCHEDULE_PER="step")
    assert close(found["weights"], by_hand(3, schedule_per="step")[0])
    assert found["rate"] == pytest.approx(0.1 * 0.5 ** (3 * STEPS_AN_EPOCH // DECAY["step"]))


@pytest.mark.process
@over_each_engine
def test_a_compiled_model_trains_like_plain_pytorch(tmp_path: Path, engine: str) -> None:
    found = alone(tmp_path, engine, COMPILE="aot_eager", MICRO="10")
    assert close(found["weights"], by_hand(3)[0])
    assert found["names"] == ["1.weight", "1.bias", "3.weight", "3.bias"], "not those of the compiled module"


@pytest.mark.process
@over_each_engine
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precisions_reach_a_similar_loss(tmp_path: Path, engine: str, precision: str) -> None:
    found = alone(tmp_path, engine, PRECISION=precision, EPOCHS="4")
    assert found["evaluation"]["loss"] < 0.5 * by_hand(0)[1]


@pytest.mark.process
def test_a_restart_goes_on_from_the_durable_checkpoint(tmp_path: Path) -> None:
    """All workers are lost after two epochs: epochs three and four are trained as without the loss."""
    durable = {ENV_CHECKPOINT: f"file://{tmp_path}/checkpoints", ENV_CHECKPOINT_STEPS: str(STEPS_AN_EPOCH + 1)}
    first = alone(tmp_path, EPOCHS="2", **durable)
    assert first["steps"] == 2 * STEPS_AN_EPOCH
    second = alone(tmp_path, EPOCHS="4", **durable)
    assert second["steps"] == 4 * STEPS_AN_EPOCH
    assert second["why"] == "4 epochs done"
    assert close(second["weights"], by_hand(4)[0])


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(600)
@over_each_engine
def test_resizes_change_nothing_but_the_speed(tmp_path: Path, engine: str) -> None:
    board = tmp_path / "board"
    options = {"EPOCHS": "8", "STEP_SECONDS": "0.15", "MICRO": "10", "CLIP": "0.5", ENV_TENSORBOARD: str(board)}
    with training(tmp_path, engine=engine, **options) as job:
        job.offer_usual(HOSTS[0])
        job.launch_usual("-np", "1", "--min-np", "1", "--max-np", "2", script=SCRIPT)
        job.trains(1)
        job.offer_usual(*HOSTS[:2])
        job.trains(2)
        job.offer_usual(HOSTS[0])
        job.trains(1)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        found = results(job)[-1]
    weights, final = by_hand(8, clip_norm=0.5)
    assert found["samples"] == [LENGTH, 0, 0]
    assert close(found["weights"], weights)
    assert found["evaluation"]["loss"] == pytest.approx(final, rel=1e-2, abs=1e-5)
    assert scalars(board)["evaluation/loss"][-1] == pytest.approx(final, rel=1e-2, abs=1e-5)


@pytest.mark.process
@pytest.mark.timeout(900)
@over_each_engine
def test_a_sharded_optimizer_clips_and_resizes_as_the_plain_one(tmp_path: Path, engine: str) -> None:
    """2 -> 3 -> 2 -> 1 workers, with gradients that are accumulated and clipped."""
    options = {"EPOCHS": "8", "STEP_SECONDS": "0.15", "MICRO": "10", "SHARDED": "1", "CLIP": "0.5"}
    with training(tmp_path, engine=engine, **options) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(2)
        job.offer("a", "b", "c")
        job.trains(3)
        job.offer("a", "b")
        job.trains(2)
        job.offer("a")
        job.trains(1)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        found = results(job)[-1]
    weights, final = by_hand(8, clip_norm=0.5)
    assert found["samples"] == [LENGTH, 0, 0]
    assert close(found["weights"], weights)
    assert found["evaluation"]["loss"] == pytest.approx(final, rel=1e-2, abs=1e-5)


def scalars(folder: Path) -> dict[str, list[float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_problem_is_named_before_anything_starts() -> None:
    data, model = problem()
    optimizer = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    optimizer.skip_synchronize = None  # type: ignore[attr-defined]
    with pytest.raises(TrainerError) as caught:
        Trainer(
            model,
            optimizer,
            loss=loss,
            data=data,
            epochs=0,
            max_steps=0,
            schedule_per="hour",
            evaluation=Evaluation(
                data=None,
                every=5,
                early_stop=EarlyStop(patience=0, mode="least", min_delta=-1.0),
                keep_best=KeepBest(mode="most"),
            ),
            computation=Computation(clip_norm=0.0, precision="fp8"),
            checkpointing=Checkpointing(commit_every=0),
            reporting=Reporting(log_every=0),
        )
    for name in (
        "epochs: 0",
        "checkpointing.commit_every: 0",
        "max_steps: 0",
        "reporting.log_every: 0",
        "evaluation.every: there is nothing to evaluate: give `evaluation.data` too",
        "evaluation.early_stop: there is nothing to evaluate",
        "evaluation.keep_best: there is nothing to evaluate",
        "evaluation.early_stop.patience: 0 is below 1",
        "evaluation.early_stop.mode: 'least' is not one of min, max",
        "evaluation.early_stop.min_delta: -1.0 is below 0",
        "evaluation.keep_best.mode: 'most' is not one of min, max",
        "schedule_per: 'hour' is not one of epoch, step",
        "computation.clip_norm: 0.0",
        "computation.precision: 'fp8' is not one of full, bf16, fp16",
        "optimizer: it is already wrapped by hvd.DistributedOptimizer",
        "optimizer: it steps 1 parameter that the model does not have",
    ):
        assert name in str(caught.value)


def test_a_new_rank_0_purges_what_will_be_trained_again(tmp_path: Path) -> None:
    first, second = TensorBoardWriter(str(tmp_path)), TensorBoardWriter(str(tmp_path))
    for step in range(5):
        first.write(step, {"loss": float(step)})
    first.close()
    for step in (3, 4):
        second.write(step, {"loss": 10.0 + step})
    second.close()
    assert scalars(tmp_path)["loss"] == [0, 1, 2, 13, 14]


def test_without_a_folder_or_the_package_there_are_no_tensorboard_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TensorBoardWriter(None).write(1, {"loss": 1.0})
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    TensorBoardWriter(str(tmp_path)).write(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_metric_that_is_not_measured_is_named() -> None:
    judges: dict[str, EarlyStop | KeepBest] = {"early_stop": EarlyStop(metric="accuracy"), "keep_best": KeepBest()}
    with pytest.raises(TrainerError, match=r"early_stop.metric: 'accuracy' is not measured: .* returned error, loss$"):
        check_measured({"loss": 0.5, "error": 0.1}, judges)


def test_a_scheduler_that_needs_a_value_is_refused() -> None:
    _, model = problem()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TrainerError, match="ReduceLROnPlateau"):
        check_scheduler(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
    check_scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1))
