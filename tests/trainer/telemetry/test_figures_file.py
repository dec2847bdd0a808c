"""FIGURES_FILE, as the reading side understands it, from events at times that the test sets."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hvd_elastic.discovery.ledger.training_figures import ResizePause, TrainingFigures
from hvd_elastic.mpijob.contract import ENV_EVENTS, ENV_RUN_DIR, FIGURES_FILE, FIGURES_MAX_BYTES
from hvd_elastic.trainer.checkpoint import SaveCounts
from hvd_elastic.trainer.telemetry import events, figures_file
from hvd_elastic.trainer.telemetry.figures_file import FiguresWriter


class Process:
    """A training process whose clock stands still between steps."""

    def __init__(self, folder: Path) -> None:
        self.now, self.saves, self._folder = 1000.0, SaveCounts(), folder
        self.wall = 1_700_000_000.0
        """What the wall clock shows more than the one that does not jump."""
        self.samples = self.save_error = ""
        self.published: list[str] = []
        self.writer = FiguresWriter(
            saves=lambda: self.saves,
            save_error=lambda: self.save_error,
            samples=lambda: self.samples,
            publish=self.published.append,
            clock=lambda: self.now,
        )
        self.rank, self.size, self.step_count = 0, 4, 0

    def step(self, count: int = 1, *, seconds: float = 0.1, **logged: object) -> None:
        for _ in range(count):
            self.now += seconds
            self.step_count += 1
            self.hear(events.Kind.STEP, epoch=2, seconds=seconds, **logged)

    def reset(self, *, size: int, rank: int = 0, step: int | None = None, cause: str = "hosts") -> None:
        self.now += 5.0
        before, self.size, self.rank = self.size, size, rank
        self.step_count = self.step_count if step is None else step
        self.hear(events.Kind.RESET, cause=cause, seconds=5.0, **{"from": before})

    def hear(self, kind: events.Kind, **fields: object) -> None:
        world = {"rank": self.rank, "size": self.size, "step": self.step_count}
        self.writer.on_event({"time": self.wall + self.now, "event": kind.value, **world, **fields})

    @property
    def figures(self) -> TrainingFigures | None:
        try:
            return TrainingFigures.from_json(json.loads((self._folder / FIGURES_FILE).read_bytes()))
        except FileNotFoundError:
            return None

    @property
    def known(self) -> TrainingFigures:
        assert self.figures is not None
        return self.figures


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    return Process(tmp_path)


def test_a_step_a_second_is_told(process: Process) -> None:
    process.step(loss=torch.tensor(0.5))
    assert process.known == TrainingFigures(unix=1_700_001_000.1, step=1, size=4, epoch=2, loss=0.5)
    process.step(9, loss=0.4)
    assert process.known.step == 1
    process.step(loss=0.3)
    assert (process.known.step, process.known.loss) == (11, 0.3)
    assert process.known.steps_per_second == pytest.approx(10.0)
    assert process.writer.loss == 0.3
    process.reset(size=4, rank=2)
    assert process.writer.loss is None, "another rank's metrics must not show a loss of the past"


def test_the_last_loss_stays_and_one_that_is_no_number_is_left_out(process: Process) -> None:
    process.step(loss=0.5)
    process.step(11)
    assert (process.known.step, process.known.loss) == (11, 0.5)
    process.step(10, loss=float("nan"))
    assert (process.known.step, process.known.loss) == (21, None)


def test_what_else_the_script_logs_is_told_by_name(process: Process) -> None:
    process.step(loss=0.5, accuracy=torch.tensor(0.25), note="warm", samples=64, **{"val/f1": 3, "no name": 1})
    assert process.known.metrics == {"accuracy": 0.25, "val/f1": 3.0}
    process.step(11, accuracy=float("inf"))
    assert process.known.metrics == {"val/f1": 3.0}


def test_the_longest_metrics_fit(process: Process, tmp_path: Path) -> None:
    logged: dict[str, Any] = {f"{number:064}": -1.2345678901234567e-300 for number in range(20)}
    process.samples = process.save_error = "é" * 1000
    process.saves = SaveCounts(rejected="é" * 1000)
    for _ in range(8):
        process.step(**logged)
        process.reset(size=1000)
    process.step()
    assert len(process.known.metrics) == 16
    assert process.known.samples == "?" * 300
    assert (tmp_path / FIGURES_FILE).stat().st_size < FIGURES_MAX_BYTES


def test_the_end_of_training_tells_what_came_since_the_last_write_and_publishes_it(process: Process) -> None:
    process.step(3, loss=0.5, accuracy=0.5)
    assert process.known.step == 1
    process.saves, process.samples = SaveCounts(durable_step=3, durable_time=1.0), "epoch 0"
    process.hear(events.Kind.ENDED, accuracy=0.75)
    assert (process.known.step, process.known.epoch, process.known.metrics) == (3, 2, {"accuracy": 0.75})
    assert (process.known.durable_step, process.known.samples) == (3, "epoch 0")
    assert process.known.unix == pytest.approx(1_700_001_000.3), "when the last step was"
    (line,) = process.published
    assert TrainingFigures.from_json(json.loads(line)) == process.known


def test_a_rank_0_that_saw_no_step_publishes_what_it_knows(process: Process) -> None:
    process.hear(events.Kind.ENDED)
    assert process.published == [], "nothing was trained"
    process.step_count = 750
    process.hear(events.Kind.ENDED)
    assert json.loads(process.published[0])["step"] == 750
    process.rank = 1
    process.hear(events.Kind.ENDED)
    assert len(process.published) == 1


def test_only_rank_0_writes(process: Process) -> None:
    process.rank = 1
    process.step(30)
    assert process.figures is None


def test_a_new_rank_0_goes_on_with_what_it_saw(process: Process) -> None:
    process.rank = 1
    process.step(30, loss=0.5)
    process.reset(size=3, rank=0)
    process.step(loss=0.4)
    pause = ResizePause(unix=1_700_001_008.0, seconds=5.0, from_size=4, to_size=3, step=30, repeated=0)
    assert (process.known.step, process.known.pauses) == (31, (pause,))


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_step_of_the_clock_within_a_pause_is_no_part_of_it(process: Process, seconds: float) -> None:
    process.step(30)
    process.reset(size=3)
    process.wall += seconds
    process.reset(size=4)
    process.step()
    (pause,) = process.known.pauses
    assert (pause.seconds, pause.to_size) == (10.0, 4)


def test_a_world_without_a_step_is_part_of_the_pause(process: Process) -> None:
    process.step(30)
    process.reset(size=3, step=28)
    process.now += 2.0
    process.reset(size=2, step=27, cause="failure")
    process.reset(size=4, step=27)
    process.step(12)
    (pause,) = process.known.pauses
    began = 1_700_001_000.0 + 3.0
    assert pause == ResizePause(unix=began + 17.0, seconds=17.0, from_size=4, to_size=4, step=27, repeated=3)
    process.reset(size=3)
    process.step()
    assert [pause.to_size for pause in process.known.pauses] == [4, 3]


def test_who_is_no_longer_rank_0_takes_its_figures_back(process: Process) -> None:
    process.step()
    process.reset(size=5, rank=1)
    assert process.figures is None
    process.reset(size=4, rank=0)
    process.step()
    assert process.known.size == 4
    process.hear(events.Kind.LEFT)
    assert process.figures is None


def test_a_process_that_wrote_none_leaves_anothers_alone(process: Process, tmp_path: Path) -> None:
    (tmp_path / FIGURES_FILE).write_text('{"unix":1}\n')
    process.rank = 1
    process.step(20)
    process.reset(size=3, rank=1)
    assert process.known == TrainingFigures(unix=1.0)


def test_the_step_that_a_process_came_with(process: Process) -> None:
    process.step()
    assert (process.known.began_step, process.known.began) == (-1, None)
    process.step_count = 70
    process.hear(events.Kind.JOINED, seconds=2.0)
    came = 1_700_000_000 + process.now
    process.step(11)
    process.reset(size=3)
    process.step(11)
    assert (process.known.began_step, process.known.began) == (70, came)


def test_a_pause_is_told_and_does_not_slow_the_rate(process: Process) -> None:
    process.step(100)
    process.reset(size=2)
    process.step()
    assert process.known.steps_per_second is None
    process.step(20, seconds=0.2)
    assert process.known.steps_per_second == pytest.approx(5.0)
    (pause,) = process.known.pauses
    assert (pause.seconds, pause.from_size, pause.to_size, pause.repeated) == (5.0, 4, 2, 0)


def test_steps_that_are_done_again_are_told(process: Process) -> None:
    process.step(10)
    process.reset(size=3, step=7, cause="failure")
    process.step(2)
    process.reset(size=3, step=9, cause="failure")
    process.step(11)
    assert [(pause.step, pause.repeated) for pause in process.known.pauses] == [(7, 3), (9, 0)]


def test_the_last_eight_pauses_fit(process: Process, tmp_path: Path) -> None:
    process.step_count = 10**15
    for _ in range(20):
        process.step()
        process.reset(size=1000)
    process.step()
    assert [pause.step - 10**15 for pause in process.known.pauses] == list(range(13, 21))
    assert (tmp_path / FIGURES_FILE).stat().st_size < FIGURES_MAX_BYTES / 2


def test_why_nothing_gets_durable_is_told_until_something_does(process: Process) -> None:
    process.step()
    assert process.known.save_error == ""
    process.save_error = "/checkpoints: Read-only file system"
    process.step(11)
    assert process.known.save_error == "/checkpoints: Read-only file system"
    process.save_error = ""
    process.step(11)
    assert process.known.save_error == ""
    process.saves = SaveCounts(rejected="manifests/a-step-50.json: is cut off")
    process.step(11)
    assert process.known.rejected == "manifests/a-step-50.json: is cut off"


def test_the_last_durable_checkpoint(process: Process) -> None:
    process.step()
    assert (process.known.durable_step, process.known.durable) == (-1, None)
    process.saves = SaveCounts(durable_step=7, durable_time=1_700_000_500.0)
    process.step(11)
    assert (process.known.durable_step, process.known.durable) == (7, 1_700_000_500.0)


def test_a_horovod_state_of_its_own_has_no_epoch_and_any_object_may_be_one(process: Process) -> None:
    process.hear(events.Kind.STEP)
    process.now += 1.0
    for epoch in (object(), 0.5, "3", 10**5000):
        process.hear(events.Kind.STEP, epoch=epoch)
        process.now += 1.0
        assert process.known.epoch == -1


def test_it_starts_once_where_there_is_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_file, "_THIS_PROCESS", FiguresWriter())  # that of this process may have just written
    monkeypatch.delenv(ENV_EVENTS, raising=False)
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "away"))
    figures_file.start(str, lambda _line: None)
    assert not events.enabled()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    figures_file.start(str, lambda _line: None)
    figures_file.start(str, lambda _line: None)
    assert len(events._listeners) == 1
    events.emit(events.Kind.STEP, rank=0, size=1, step=3)
    assert (tmp_path / FIGURES_FILE).exists()
