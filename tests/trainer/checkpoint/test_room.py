"""A store that is nearly full: a real file system of 16 MiB."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_elastic.stores.file_store import FileStore
from hvd_elastic.trainer.checkpoint import Checkpoints, FencedError, StoreFullError
from tests.trainer.checkpoint.snapshots import large, same

Open = Callable[..., Checkpoints]
MIB = 1 << 20


def save(checkpoints: Checkpoints, step: int, *, mib: int) -> bool:
    checkpoints.save(large(step, mib=mib), step=step, world_size=1, reason="interval")
    durable = checkpoints.flush(30)
    assert checkpoints.wait_idle(30)
    return durable


def steps(root: Path) -> list[int]:
    return sorted(int(path.stem.rsplit("-", 1)[1]) for path in (root / "manifests").iterdir())


def fill(root: Path) -> Path:
    """Leave not one byte free."""
    path = root / "filler"
    with pytest.raises(OSError, match="No space"), path.open("wb", buffering=0) as file:  # noqa: PT012 - until it fails
        while file.write(bytes(MIB)) == MIB:
            pass
        while True:
            file.write(b"x")
    return path


@pytest.fixture(params=["tells what is free", "does not tell"])
def nearly_full(request: pytest.FixtureRequest, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A quota is not seen in what the file system says is free."""
    if request.param == "does not tell":
        monkeypatch.setattr(FileStore, "free_bytes", lambda _: None)
    return tiny


def test_a_disk_with_room_for_three_keeps_storing(nearly_full: Path, opened: Open) -> None:
    checkpoints = opened(f"file://{nearly_full}/a", keep=3)
    for step in range(1, 8):
        assert save(checkpoints, step, mib=4), checkpoints.counts.error
        assert steps(nearly_full / "a")[-1] == step
    assert steps(nearly_full / "a") == [5, 6, 7]
    assert len(list((nearly_full / "a/data").iterdir())) == 3


def test_a_disk_with_room_for_two_keeps_storing(nearly_full: Path, opened: Open) -> None:
    checkpoints = opened(f"file://{nearly_full}/a", keep=3)
    for step in range(1, 5):
        assert save(checkpoints, step, mib=7), checkpoints.counts.error
    assert steps(nearly_full / "a") == [3, 4]


def test_the_newest_is_never_deleted_for_room(nearly_full: Path, opened: Open) -> None:
    checkpoints = opened(f"file://{nearly_full}/a", keep=3)
    assert save(checkpoints, 1, mib=9)
    assert not save(checkpoints, 2, mib=9)
    assert "10 MiB are needed beside the newest checkpoint" in checkpoints.counts.error
    assert steps(nearly_full / "a") == [1]
    found = opened(f"file://{nearly_full}/a", "two").latest()
    assert found is not None
    assert same(found.load(), large(1, mib=9))


def test_none_is_deleted_if_all_would_not_be_enough(tiny: Path, opened: Open) -> None:
    checkpoints = opened(f"file://{tiny}/a", keep=3)
    for step in (1, 2, 3):
        assert save(checkpoints, step, mib=2)
    assert not save(checkpoints, 4, mib=20)
    assert steps(tiny / "a") == [1, 2, 3]


def test_what_a_crash_left_goes_before_any_checkpoint(nearly_full: Path, opened: Open) -> None:
    """Nothing would sweep it otherwise: a sweep follows a save that was stored."""
    old = opened(f"file://{nearly_full}/a", keep=3)
    for step in (1, 2):
        assert save(old, step, mib=4)
    for name in ("00000001-00000003-aa.partial", "00000001-00000004-bb"):
        (nearly_full / "a/data" / name).write_bytes(bytes(3 * MIB))
    new = opened(f"file://{nearly_full}/a", "two", keep=3)
    assert save(new, 3, mib=4), new.counts.error
    assert steps(nearly_full / "a") == [1, 2, 3]


def test_a_writer_that_was_fenced_out_deletes_nothing(nearly_full: Path, opened: Open) -> None:
    old = opened(f"file://{nearly_full}/a", keep=3)
    for step in (1, 2, 3):
        assert save(old, step, mib=4)
    opened(f"file://{nearly_full}/a", "two")
    assert not save(old, 4, mib=4)
    assert steps(nearly_full / "a") == [1, 2, 3]


def test_a_job_resumes_from_a_full_disk_and_saves_once_there_is_space(
    tiny: Path, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    old = opened(f"file://{tiny}/a")
    assert save(old, 1, mib=2)
    filler = fill(tiny)
    with caplog.at_level(logging.WARNING):
        new = opened(f"file://{tiny}/a", "two")
    assert "can be read, but nothing can be saved before there is space" in caplog.text
    found = new.latest()
    assert found is not None
    assert same(found.load(), large(1, mib=2))
    assert not save(new, 2, mib=2)
    assert "No space left on device" in new.counts.error
    filler.unlink()
    assert save(new, 3, mib=2), new.counts.error
    assert not save(old, 9, mib=2), "the former writer is fenced out since then"
    with pytest.raises(FencedError):
        save(old, 10, mib=2)
    assert steps(tiny / "a") == [1, 3]


def test_a_writer_that_waited_for_space_gives_way_to_one_that_came_later(tiny: Path, opened: Open) -> None:
    assert save(opened(f"file://{tiny}/a"), 1, mib=2)
    filler = fill(tiny)
    waiting = opened(f"file://{tiny}/a", "two")
    filler.unlink()
    later = opened(f"file://{tiny}/a", "three")
    assert not save(waiting, 2, mib=2)
    with pytest.raises(FencedError, match="launcher three has claimed"):
        save(waiting, 3, mib=2)
    assert save(later, 4, mib=2), later.counts.error


def test_a_full_disk_without_a_checkpoint_is_an_error(tiny: Path, opened: Open) -> None:
    fill(tiny)
    with pytest.raises(StoreFullError, match="free space"):
        opened(f"file://{tiny}/a")
