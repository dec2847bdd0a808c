"""The shared file system: full disks, and faults of network file systems; real ones where the kernel allows."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from hvd_elastic.stores.errors import CorruptError
from hvd_elastic.stores.file_store import GENERATIONS, FileStore
from hvd_elastic.trainer.checkpoint import StoreError, StoreFullError, open_checkpoints
from testbed.local import forkserver
from tests.trainer.checkpoint.snapshots import large, same, small


def store_at(root: Path) -> FileStore:
    return FileStore(root, part_bytes=1 << 20, threads=2, sleep=lambda _: None, attempts=3)


def test_a_full_disk_costs_one_save_and_nothing_that_was_durable(tiny: Path) -> None:
    checkpoints = open_checkpoints(f"file://{tiny}/a?part_mib=5&threads=2", job="a", incarnation="one", keep=2)
    try:
        checkpoints.save(large(1, mib=9), step=1, world_size=1, reason="interval")
        assert checkpoints.flush(30)
        checkpoints.save(large(2, mib=9), step=2, world_size=1, reason="interval")
        assert not checkpoints.flush(30)
        assert "No space left on device: free space" in checkpoints.counts.error
        assert "10 MiB are needed beside the newest checkpoint" in checkpoints.counts.error
        assert [path.name for path in (tiny / "a/data").iterdir()] == [
            path.name for path in (tiny / "a/data").iterdir() if path.name.startswith("00000001-00000001")
        ], "the unfinished second save was deleted"
        found = checkpoints.latest()
        assert found is not None
        assert same(found.load(), large(1, mib=9))
        checkpoints.save(small(3), step=3, world_size=1, reason="interval")
        assert checkpoints.flush(30), "saves succeed again as soon as there is space"
    finally:
        checkpoints.close()


@pytest.mark.core
@pytest.mark.process
def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    script = f"""
import resource, signal, torch
from hvd_elastic.trainer.checkpoint import open_checkpoints
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
c = open_checkpoints("file://{tmp_path}/a", job="a", incarnation="one")
c.save({{"w": torch.zeros(1 << 20)}}, step=1, world_size=1, reason="interval")
assert not c.flush(30) and "File too large" in c.counts.error, c.counts
"""
    done = subprocess.run([*forkserver.python(), "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_space_at_the_end_is_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """NFS reports it only when the data is sent: at fsync."""

    def fsync(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreFullError):
        store_at(tmp_path).create("owner.json", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_stale_handle_is_tried_again_with_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = os.fsync, iter([errno.ESTALE, errno.EIO])

    def fsync(handle: int) -> None:
        if number := next(failures, None):
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert store_at(tmp_path).create("owner.json", b"x")
    assert (tmp_path / "owner.json").read_bytes() == b"x"


def test_a_link_whose_answer_was_lost_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS resends a request whose answer was lost; the second one gets EEXIST."""
    real = os.link

    def link(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, "again", str(target))

    monkeypatch.setattr(os, "link", link)
    assert store_at(tmp_path).create("owner.json", b"mine")


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str) -> None:
        raise OSError(errno.ENOTSUP, "no links")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreError, match="no hard links, so two writers cannot be kept apart: use NFS"):
        store_at(tmp_path).create("owner.json", b"x")


def test_a_register_keeps_a_bounded_history_and_a_very_late_writer_loses(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    version = first = store.replace("latest", b"0", version=None)
    for number in range(GENERATIONS + 5):
        version = store.replace("latest", b"%d" % number, version=version)
        assert version is not None
    assert len(list((tmp_path / "latest").iterdir())) <= GENERATIONS + 1
    assert not (tmp_path / "latest/00000002").exists()
    assert store.replace("latest", b"late", version=first) is None
    found = store.read("latest")
    assert found is not None
    assert found.version == version


@pytest.mark.parametrize("name", ["owner.json", "latest/00000002", "data/a"])
def test_what_is_no_file_is_damage_and_no_wait(name: str, tmp_path: Path) -> None:
    """To open a FIFO waits for its writer, for ever."""
    store = store_at(tmp_path)
    store.replace("latest", b"0", version=None)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(CorruptError, match="is not a regular file"):
        store.read("latest" if name.startswith("latest") else name)
    with pytest.raises(CorruptError, match="is not a regular file"):
        store.read_into(name, 0, memoryview(bytearray(4)))


def test_an_unusable_folder_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/data"):
        store_at(tmp_path / "file").start_upload("data/a", 1)


def test_a_stale_listing_hides_neither_the_register_nor_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may list a folder as it was a minute ago, but finds a file that is looked up by name."""
    old = open_checkpoints(f"file://{tmp_path}/a", job="a", incarnation="one")
    for step in (1, 2):
        old.save(small(step), step=step, world_size=1, reason="interval")
        assert old.flush(30)
    old.close()
    real = os.listdir
    stale = {path: [min(real(path))] for path in (tmp_path / "a/latest", tmp_path / "a/manifests")}
    monkeypatch.setattr(os, "listdir", lambda path: stale.get(Path(path)) or real(path))
    new = open_checkpoints(f"file://{tmp_path}/a", job="a", incarnation="two")
    found = new.latest()
    new.close()
    assert found is not None
    assert found.step == 2
