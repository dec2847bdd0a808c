"""Reading beside a live writer: it is not fenced out, and nothing below the prefix changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.stores.file_store import FileStore
from hvd_elastic.trainer.checkpoint import Checkpoint, Checkpoints, CorruptError, Rejected, read_checkpoints
from tests.trainer.checkpoint.proxy import Faults
from tests.trainer.checkpoint.snapshots import large, same, small

Open = Callable[..., Checkpoints]


def save(checkpoints: Checkpoints, step: int, snapshot: dict[str, object] | None = None) -> None:
    checkpoints.save(snapshot or small(step), step=step, world_size=3, reason="interval")
    assert checkpoints.flush(60), checkpoints.counts.error
    assert checkpoints.wait_idle(60)


def contents(root: Path) -> dict[str, tuple[int, int]]:
    """Return each file's time of change and inode."""
    return {str(path): (path.stat().st_ctime_ns, path.stat().st_ino) for path in root.rglob("*")}


def look(url: str) -> None:
    """Look at everything, in every way there is."""
    with read_checkpoints(url) as reader:
        found = reader.latest()
        assert found is not None
        listed = reader.checkpoints()
        assert [each.step for each in listed if isinstance(each, Checkpoint)] == [2, 1]
        assert same(found.load(), large(2))
        for each in listed:
            assert isinstance(each, Checkpoint)
            assert same(each.load(), large(each.step))
    for words in (["list", url], ["verify", url], ["show", url]):
        done = CliRunner().invoke(cli, ["checkpoints", *words])
        assert done.exit_code == 0, done.output


def test_reading_does_not_disturb_the_writer(url: str, opened: Open) -> None:
    writer = opened(url, keep=3)
    for step in (1, 2):
        save(writer, step, large(step))
    for step in (3, 4):
        with read_checkpoints(url) as reader:
            assert reader.latest() is not None
            save(writer, step)
            newest = reader.latest()
        assert newest is not None
        assert newest.step == step
    assert writer.counts.failed == 0


def test_reading_writes_nothing(tmp_path: Path, opened: Open) -> None:
    writer = opened(f"file://{tmp_path}")
    for step in (1, 2):
        save(writer, step, large(step))
    before = contents(tmp_path)
    look(f"file://{tmp_path}")
    assert contents(tmp_path) == before


def test_reading_sends_only_requests_that_read(s3_url: str, opened: Open, s3_client: Any, faults: Faults) -> None:
    writer = opened(s3_url)
    for step in (1, 2):
        save(writer, step, large(step))
    sent: list[str] = []
    s3_client.meta.events.register("before-call.s3", lambda model, **_: sent.append(model.name), unique_id="seen")
    try:
        look(s3_url)
    finally:
        s3_client.meta.events.unregister("before-call.s3", unique_id="seen")
    assert set(sent) <= {"GetObject", "HeadObject", "ListObjectsV2"}, "none of them writes"


def test_nothing_is_there_and_nothing_is_made(tmp_path: Path) -> None:
    with read_checkpoints(f"file://{tmp_path}/none") as reader:
        assert reader.latest() is None
        assert reader.checkpoints() == ()
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoints_of_a_prefix_without_an_owner_are_read(tmp_path: Path, opened: Open) -> None:
    save(opened(f"file://{tmp_path}"), 1)
    (tmp_path / "owner.json").unlink()
    with read_checkpoints(f"file://{tmp_path}") as reader:
        found = reader.latest()
        assert found is not None
        assert same(found.load(), small(1))


def test_what_the_writer_deletes_meanwhile_is_looked_for_again(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(f"file://{tmp_path}", keep=1)
    save(writer, 1)
    real, moves = FileStore.size_of, iter([2])

    def size_of(store: FileStore, key: str) -> int | None:
        for step in moves:
            save(writer, step)
        return real(store, key)

    with read_checkpoints(f"file://{tmp_path}") as reader:
        monkeypatch.setattr(FileStore, "size_of", size_of)
        found = reader.latest()
    assert found is not None
    assert found.step == 2


def test_damage_is_shown_and_raised(tmp_path: Path, opened: Open) -> None:
    writer = opened(f"file://{tmp_path}")
    for step in (1, 2):
        save(writer, step)
    first, second = sorted((tmp_path / "data").iterdir())
    first.write_bytes(b"")
    max((tmp_path / "manifests").iterdir()).write_bytes(b"{}")
    second.unlink()
    with read_checkpoints(f"file://{tmp_path}") as reader:
        newest, oldest = reader.checkpoints()
        assert isinstance(newest, Rejected)
        assert isinstance(oldest, Checkpoint)
        with pytest.raises(CorruptError):
            oldest.load()
        with pytest.raises(CorruptError, match="none of the checkpoints verifies"):
            reader.latest()
    done = CliRunner().invoke(cli, ["checkpoints", "verify", f"file://{tmp_path}", "-o", "json"])
    rows = json.loads(done.output)
    assert [row.get("step") for row in rows] == [None, 1]
    assert "not a sealed object" in rows[0]["status"]
    assert "has 0 bytes" in rows[1]["status"]
    named = CliRunner().invoke(cli, ["checkpoints", f"file://{tmp_path}", "-o", "name"])
    assert named.output.split() == [row["manifest"] for row in rows]
