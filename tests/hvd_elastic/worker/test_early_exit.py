"""What the launcher is told of a process that ended inside its training function, or outside of it."""

from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_RUN_DIR, MISTAKE_LINE, Exit
from hvd_elastic.trainer.elastic import training_mark
from hvd_elastic.worker.early_exit import ReportedExit, TrainingMark, reported_exit, take_mark

ALONE = TrainingMark(rank=2, size=3, step=41, ordered=False)
TOLD = TrainingMark(rank=2, size=3, step=41, ordered=True)


@pytest.mark.parametrize("code", [0, 1, 137])
def test_outside_of_training_a_process_ends_as_it_says(code: int) -> None:
    assert reported_exit(code, None) == ReportedExit(code=code)


def test_a_process_that_ends_well_while_others_train_is_wrong() -> None:
    reported = reported_exit(0, ALONE)
    assert reported.code == Exit.SCRIPT_MISTAKE
    assert reported.message.startswith("rank 2 has ended its process with exit code 0 after step 41")
    assert reported.message.endswith(f"\n{MISTAKE_LINE}")


@pytest.mark.parametrize("code", [1, 79, 137])
def test_another_exit_code_inside_of_training_stays(code: int) -> None:
    assert reported_exit(code, ALONE) == ReportedExit(code=code)


@pytest.mark.parametrize(("mark", "is_told"), [(None, True), (ALONE, True), (TOLD, False)])
def test_a_process_that_the_kernel_killed_for_want_of_memory_says_so(mark: TrainingMark | None, is_told: bool) -> None:
    reported = reported_exit(137, mark, oom=True)
    assert ("for want of memory: raise workers.memory" in reported.message) == is_told
    assert reported_exit(137, mark, oom=False).message == reported_exit(137, mark, oom=None).message == ""


def test_the_only_process_may_end_when_it_wants() -> None:
    assert reported_exit(0, TrainingMark(rank=0, size=1, step=3, ordered=False)) == ReportedExit(code=0)


@pytest.mark.parametrize("code", [0, 1, 143])
def test_after_sigterm_any_end_is_a_leave(code: int) -> None:
    assert reported_exit(code, TOLD) == ReportedExit(code=Exit.REMOVED)


@pytest.mark.parametrize("text", ["", "1 2", "1 2 x 0", "\ufffd\ufffd", "a b c d"])
def test_what_is_no_mark_is_taken_for_none(text: str) -> None:
    assert TrainingMark.parse(text) is None


def test_the_mark_is_read_as_the_process_last_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    monkeypatch.setattr("os.getpid", lambda: 4711)
    mark = training_mark.TrainingMarkWriter()
    mark.enter(11, 64)
    mark.note_step(123_456)
    mark.enter(2, 3)
    mark.note_step(9)
    assert take_mark(tmp_path, 4711) == TrainingMark(rank=2, size=3, step=9, ordered=False)
    assert take_mark(tmp_path, 4711) is None, "it is taken once"


def test_sigterm_stands_in_the_mark_and_the_end_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))
    monkeypatch.setattr("os.getpid", lambda: 4711)
    mark = training_mark.TrainingMarkWriter()
    mark.enter(2, 3)
    mark.note_order()
    text = (tmp_path / "in-training.4711").read_text()
    assert TrainingMark.parse(text) == TrainingMark(rank=2, size=3, step=-1, ordered=True)
    mark.leave()
    assert take_mark(tmp_path, 4711) is None


def test_without_the_folder_of_a_pod_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "none"))
    mark = training_mark.TrainingMarkWriter()
    mark.enter(0, 1)
    mark.note_step(1)
    mark.leave()
    assert not (tmp_path / "none").exists()
