import queue
import threading
import time
from pathlib import Path

import pytest

from hvd_elastic.discovery.expected_workers import ExpectedWorker, write_expected
from hvd_elastic.discovery.snapshot import Host, Snapshot, uptime_seconds, write_snapshot
from hvd_elastic.launcher.host_sources import SnapshotSource


def test_workers_are_expected_before_there_is_a_list(tmp_path: Path) -> None:
    stop, expected = threading.Event(), queue.SimpleQueue[tuple[ExpectedWorker, ...]]()
    arguments = (lambda _: None, stop)
    thread = threading.Thread(target=SnapshotSource(tmp_path).watch, args=arguments, kwargs={"expect": expected.put})
    thread.start()
    worker = ExpectedWorker(uid="a", address="10.0.0.1")
    write_expected(tmp_path, {worker.uid: worker.address})
    assert expected.get(timeout=20) == (worker,)
    write_expected(tmp_path, {})
    assert expected.get(timeout=20) == ()
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


def test_a_folder_that_cannot_be_watched_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SnapshotSource, "LOOK_AGAIN_SECONDS", 0.01)
    folder = tmp_path / "run"
    folder.write_text("a file")
    stop, published = threading.Event(), queue.SimpleQueue[tuple[Host, ...]]()
    thread = threading.Thread(target=SnapshotSource(folder).watch, args=(published.put, stop), daemon=True)
    thread.start()
    thread.join(0.1)
    folder.unlink()
    while not folder.exists():  # the source makes it
        assert thread.is_alive(), "the source has given up"
        time.sleep(0.01)
    host = Host(address="10.0.0.1", slots=1, alias="a-0", pod="a")
    now = uptime_seconds()
    write_snapshot(folder, Snapshot(hosts=(host,), generation=1, uptime_seconds=now, unix_seconds=int(time.time())))
    assert published.get(timeout=20) == (host,)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
