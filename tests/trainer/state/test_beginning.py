"""What a job says at its beginning: where it goes on, that it begins anew, or that nothing is left."""

from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT_STEPS, ENV_RUN_DIR
from hvd_elastic.trainer.checkpoint import read_checkpoints
from hvd_elastic.trainer.checkpoint.reading import Checkpoint
from hvd_elastic.trainer.data.progress import Cursor, EpochPosition, Progress, progress_words
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.saved_state import load

EPOCHS = 2


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path))


def run(place: Path, *, until: int | None = None) -> int:
    """Run a job of EPOCHS epochs of ten samples from its beginning; end it after `until` commits. Returns its steps."""
    state = State(checkpoint=f"file://{place}?threads=1")
    state.sync()
    steps = 0
    for state.epoch in state.remaining_epochs(EPOCHS):
        for _ in state.batches(range(10), batch_size=4, drop_last=True):
            state.commit()
            steps += 1
            if steps == until:
                assert state._commits.save_to_store_sync("test")
                state._commits.durable.close()
                return steps
    state.end_training()
    state._commits.durable.close()
    return steps


def names(place: Path) -> list[str]:
    with read_checkpoints(f"file://{place}") as reader:
        return [found.name for found in reader.checkpoints() if isinstance(found, Checkpoint)]


def test_it_says_where_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "store"
    run(place, until=3)
    assert capsys.readouterr().err == f"hvd-elastic: no checkpoint in file://{place}, beginning anew\n"
    assert run(place) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"hvd-elastic: restored step 3 (epoch 1, 4 of 8 samples) from file://{place}/"), said


def test_a_finished_job_says_so_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "store"
    assert run(place) == 4
    before = names(place)
    assert "nothing is left" not in capsys.readouterr().err
    assert run(place) == 0
    assert names(place) == before
    said = capsys.readouterr().err
    assert f"{EPOCHS} epochs of training ended before this start, at step 4: nothing is left to train" in said


def test_the_end_is_durable_and_latest_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit more than the steps: what stands in the last epoch's body is in it, and `epoch` is that of the end."""
    place = tmp_path / "store"
    monkeypatch.setenv(ENV_CHECKPOINT_STEPS, "1")
    assert run(place) == 4
    with read_checkpoints(f"file://{place}") as reader:
        newest = reader.newest()
        assert reader.latest_name() == newest.name
    saved = load(f"file://{place}")
    assert (saved.name, saved["epoch"]) == (newest.name, EPOCHS)
    assert saved.progress is not None
    assert (saved.progress.steps, saved.step) == (4, 5)


@pytest.mark.parametrize(
    ("cursors", "epoch", "words"),
    [
        ([], 0, "step 75 (epoch 0)"),
        ([Cursor(position=384, length=1437)], 3, "step 75 (epoch 3, 384 of 1,437 samples)"),
        ([Cursor(position=384, length=1437, planned=1408)], 3, "step 75 (epoch 3, 384 of 1,408 samples)"),
        ([Cursor(position=384)], 3, "step 75 (epoch 3, 384 samples)"),
        ([Cursor(position=10, length=10), Cursor(position=2, length=10)], 3, "step 75 (epoch 3, 12 of 20 samples)"),
        ([Cursor(position=1437, length=1437)], 4, "step 75 (epoch 4)"),
    ],
)
def test_how_far_a_job_is(cursors: list[Cursor], epoch: int, words: str) -> None:
    data = EpochPosition(epoch=3, passes={"train": cursors} if cursors else {})
    assert progress_words(Progress(commits=75, data=data), epoch, "train") == words
