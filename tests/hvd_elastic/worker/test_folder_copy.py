"""Events that grow in one folder, and a folder that takes whole files alone."""

import logging
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_TENSORBOARD, ENV_TENSORBOARD_COPY, LEAVE_FILE, Exit
from hvd_elastic.worker import folder_copy
from hvd_elastic.worker.folder_copy import FolderCopy
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import INIT, first_line


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "events" / "run").mkdir(parents=True)
    return tmp_path / "events"


def test_a_file_that_grows_is_replaced_whole_and_one_that_does_not_is_left_alone(source: Path, tmp_path: Path) -> None:
    tested = FolderCopy(source, tmp_path / "kept")
    (source / "run" / "a").write_bytes(b"one")
    (source / "b").write_bytes(b"other")
    tested.copy()
    kept = tmp_path / "kept"
    assert ((kept / "run" / "a").read_bytes(), (kept / "b").read_bytes()) == (b"one", b"other")
    (kept / "b").write_bytes(b"another's")
    (source / "run" / "a").write_bytes(b"one, two")
    tested.copy()
    assert ((kept / "run" / "a").read_bytes(), (kept / "b").read_bytes()) == (b"one, two", b"another's")


def test_nothing_is_renamed_into_place_appended_to_or_linked(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Mountpoint for S3 would refuse it."""
    opened: list[tuple[str, str]] = []
    real = Path.open

    def note(path: Path, mode: str = "r", *rest: object, **options: object) -> object:
        opened.append((path.name, mode))
        return real(path, mode, *rest, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", note)
    for name in ("rename", "replace", "link"):
        monkeypatch.setattr(f"os.{name}", None)
    tested = FolderCopy(source, tmp_path / "kept")
    for content in (b"1", b"12"):
        with real(source / "a", "wb") as file:
            file.write(content)
        tested.copy()
    assert opened == [("a", "rb"), ("a", "wb")] * 2


def test_what_was_written_last_is_kept_when_the_worker_ends(source: Path, tmp_path: Path) -> None:
    tested = FolderCopy(source, tmp_path / "kept")
    tested.start()
    (source / "a").write_bytes(b"last")
    tested.finish(seconds=60)
    assert (tmp_path / "kept" / "a").read_bytes() == b"last"


def test_it_is_copied_now_and_then(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_copy, "COPY_SECONDS", 0.01)
    tested = FolderCopy(source, tmp_path / "kept")
    tested.start()
    (source / "a").write_bytes(b"1")
    eventually((tmp_path / "kept" / "a").exists, "it is copied")
    tested.finish(seconds=60)


def test_a_bucket_that_refuses_is_said_once_and_tried_again(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "kept").write_bytes(b"no folder")
    tested = FolderCopy(source, tmp_path / "kept")
    (source / "a").write_bytes(b"1")
    tested.copy()
    tested.copy()
    assert len(caplog.messages) == 1
    assert str(tmp_path / "kept") in caplog.messages[0]
    (tmp_path / "kept").unlink()
    tested.copy()
    assert (tmp_path / "kept" / "a").read_bytes() == b"1"


def test_no_folder_of_events_is_nothing_to_copy(tmp_path: Path) -> None:
    FolderCopy(tmp_path / "missing", tmp_path / "kept").copy()
    assert not (tmp_path / "kept").exists()


def test_a_bucket_that_hangs_holds_up_no_end(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    free = threading.Event()
    tested = FolderCopy(source, tmp_path / "kept")
    monkeypatch.setattr(tested, "copy", free.wait)
    tested.start()
    tested.finish(seconds=0.01)
    free.set()


LOGS = (
    INIT
    + """
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
events = Path(os.environ["HVD_ELASTIC_TENSORBOARD"], "run", "events.1")
hvd.init()
events.parent.mkdir(parents=True)
with events.open("wb", buffering=0) as file:
    file.write(b"first, ")
    print("up", flush=True)
    while not os.path.exists(os.environ["UNTIL"]):
        time.sleep(0.01)
    file.write(b"last")
sys.exit(int(os.environ["CODE"]))
"""
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("until", "code", "grace", "written"),
    [
        pytest.param("/", Exit.OK, 600, b"first, last", id="training has ended"),
        pytest.param(LEAVE_FILE, Exit.REMOVED, 600, b"first, last", id="training leaves", marks=pytest.mark.core),
        pytest.param("never", 137, 1.2, b"first, ", id="training is killed as the grace ends"),
    ],
)
def test_a_worker_that_ends_leaves_all_events(yard: Yard, until: str, code: int, grace: float, written: bytes) -> None:
    yard.write(LOGS)
    kept = yard.folder / "bucket" / "tensorboard"
    folders = {ENV_TENSORBOARD: str(yard.folder / "events"), ENV_TENSORBOARD_COPY: str(kept)}
    with yard.pod(grace=grace, env=folders) as pod:
        pod.ready()
        client = pod.adopt(cwd=yard.folder, env={"UNTIL": str(pod.run_dir / until), "CODE": str(int(code))})
        assert first_line(client) == "up\n"
        if until == "/":
            client.wait(DEADLINE_SECONDS)
        assert pod.end() == 0
        assert client.wait(DEADLINE_SECONDS) == code
    assert (kept / "run" / "events.1").read_bytes() == written
