"""Durable checkpoints as a training process uses them, on both stores."""

import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hvd_elastic.stores.file_store import FileUpload
from hvd_elastic.trainer.checkpoint import CaptureError, Checkpoints, FencedError, PrefixOwnedError, StoreError
from hvd_elastic.trainer.checkpoint import checkpoints as checkpoints_module
from hvd_elastic.trainer.checkpoint.checkpoints import save_error_of_this_process
from testbed.local import forkserver
from tests.failing_threads import fails_once
from tests.trainer.checkpoint.proxy import wait_for
from tests.trainer.checkpoint.snapshots import large, same, small

Open = Callable[..., Checkpoints]


def save(checkpoints: Checkpoints, step: int, snapshot: dict[str, object] | None = None) -> None:
    checkpoints.save(snapshot or small(step), step=step, world_size=3, reason="interval")
    assert checkpoints.flush(60), checkpoints.counts.error


def settle(checkpoints: Checkpoints) -> None:
    """Wait for the deletions that follow a save."""
    assert checkpoints.wait_idle(30)


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Uploads to files are blocked until this event is set."""
    gate, real = threading.Event(), FileUpload.finish

    def finish(upload: FileUpload) -> None:
        assert gate.wait(30)
        real(upload)

    monkeypatch.setattr(FileUpload, "finish", finish)
    return gate


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"file://{tmp_path}/checkpoints?part_mib=5"


def test_a_new_prefix_is_empty(url: str, opened: Open) -> None:
    checkpoints = opened(url)
    assert checkpoints.latest() is None
    assert checkpoints.counts.durable_step is None


@pytest.mark.core
def test_a_restart_finds_the_newest_with_its_metadata(url: str, opened: Open) -> None:
    checkpoints = opened(url, wall=lambda: 1234.5)
    for step in (10, 20):
        save(checkpoints, step, large(step))
    found = opened(url, "two").latest()
    assert found is not None
    assert (found.step, found.world_size, found.time, found.reason) == (20, 3, 1234.5, "interval")
    assert same(found.load(), large(20))
    assert same(found.load(), large(20)), "the second load reads it again"
    assert checkpoints.counts.durable == 2
    assert checkpoints.counts.durable_step == 20
    assert checkpoints.counts.size_bytes == found.size_bytes > 12 << 20


@pytest.mark.parametrize("part", ["prune", "_record_success"])
def test_an_unforeseen_error_after_a_save_holds_up_none(
    part: str, folder: str, opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    checkpoints = opened(folder)
    owner: Any = checkpoints_module if part == "prune" else Checkpoints
    failing = fails_once(monkeypatch, owner, part)
    checkpoints.save(small(1), step=1, world_size=3, reason="interval")
    settle(checkpoints)
    assert not checkpoints.busy, "its buffers are free"
    assert failing.calls == 1
    assert bool(errors) is (part != "prune")
    if part == "prune":
        assert "old checkpoints could not be deleted; the next save tries again: RuntimeError: broken" in caplog.text
    save(checkpoints, 2)
    assert checkpoints.counts.durable_step == 2


def test_a_state_of_more_parts_than_a_store_takes_has_larger_parts(
    url: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In small: of three parts at most, which 16 MiB in parts of 5 MiB exceed."""
    monkeypatch.setattr("hvd_elastic.trainer.checkpoint.format.checkpoint_manifest.MOST_PARTS", 3)
    checkpoints = opened(url)
    save(checkpoints, 1, large(1, mib=16))
    found = opened(url, "two").latest()
    assert found is not None
    assert (found.manifest.part_bytes, len(found.manifest.sha256)) == (6 << 20, 3)
    assert same(found.load(), large(1, mib=16))


def test_what_is_kept(url: str, opened: Open) -> None:
    checkpoints = opened(url, keep=2)
    for step in range(1, 6):
        save(checkpoints, step)
    settle(checkpoints)
    store = checkpoints._claim.store
    assert [key.rsplit("-", 1)[1] for key in sorted(store.keys("manifests"))] == ["4.json", "5.json"]
    assert len(store.keys("data")) == 2


def test_a_second_job_is_refused_with_the_ways_out(url: str, opened: Open) -> None:
    save(opened(url), 1)
    with pytest.raises(PrefixOwnedError) as caught:
        opened(url, job="research/b")
    for text in ("'research/a'", "'research/b'", "choose another prefix", "resume", "delete"):
        assert text in str(caught.value)
    assert opened(url, "two").latest() is not None, "the same name resumes"


@pytest.mark.distribution
@pytest.mark.core
def test_of_two_launchers_the_first_is_fenced_out_for_good(url: str, opened: Open) -> None:
    old = opened(url, "one")
    save(old, 1)
    new = opened(url, "two")
    old.save(small(99), step=99, world_size=1, reason="interval")
    assert not old.flush(30)
    assert old.due(100), "so that save() reports it"
    with pytest.raises(FencedError, match="launcher two has claimed the checkpoints"):
        old.save(small(100), step=100, world_size=1, reason="interval")
    with pytest.raises(FencedError, match="launcher one was superseded by two"):
        opened(url, "one")
    save(new, 2)
    found = new.latest()
    assert found is not None
    assert found.step == 2


def test_a_newer_claim_is_noticed_before_the_next_save(
    url: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    old = opened(url, "one", interval_seconds=1000, clock=lambda: now[0])
    save(old, 1)
    settle(old)
    opened(url, "two")
    assert not old.due(2), "nobody has looked yet"
    now[0] += checkpoints_module.CLAIM_SECONDS
    wait_for(lambda: old.due(3))
    assert "launcher two has claimed the checkpoints" in caplog.text
    with pytest.raises(FencedError, match="launcher two has claimed the checkpoints"):
        old.save(small(3), step=3, world_size=1, reason="interval")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_save_has_ended_whatever_became_of_it(folder: str, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no later save would ever be due."""
    checkpoints = opened(folder, "one", interval_steps=1)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("not one of a store's errors")

    with monkeypatch.context() as patch:
        patch.setattr("hvd_elastic.trainer.checkpoint.checkpoints.prune", broken)
        save(checkpoints, 1)
        assert checkpoints.wait_idle(10)
    assert checkpoints.due(2)
    save(checkpoints, 2)


@pytest.mark.distribution
def test_a_failed_save_has_ended_before_its_thread(folder: str, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a thread lives after its last line is the interpreter's affair."""
    old, over = opened(folder, "one", interval_steps=1), threading.Event()
    opened(folder, "two")
    run = old._run

    def lives_on(*args: Any) -> None:
        run(*args)
        assert over.wait(30)

    monkeypatch.setattr(old, "_run", lives_on)
    old.save(small(1), step=1, world_size=1, reason="interval")
    assert not old.flush(30)
    assert old.wait_idle(0)
    assert old.due(2)
    over.set()


def test_a_new_rank_0_of_the_same_launcher_takes_over(url: str, opened: Open) -> None:
    old = opened(url, "one")
    save(old, 5)
    new = opened(url, "one")
    save(new, 4)
    old.save(small(6), step=6, world_size=1, reason="interval")
    assert not old.flush(30)
    found = opened(url, "one").latest()
    assert found is not None
    assert found.step == 4, "the newest is what the newest writer wrote, whatever the step"


def test_unknown_launchers_follow_one_another(url: str, opened: Open) -> None:
    save(opened(url, ""), 1)
    save(opened(url, ""), 2)
    found = opened(url, "").latest()
    assert found is not None
    assert found.step == 2


def test_a_manifest_copied_from_another_prefix_is_not_used(tmp_path: Path, opened: Open) -> None:
    save(opened(f"file://{tmp_path}/a"), 1)
    copied = opened(f"file://{tmp_path}/b")
    save(copied, 1)
    for folder in ("manifests", "data"):
        for path in (tmp_path / "a" / folder).iterdir():
            target = path.name.replace("00000001-00000001", "00000009-00000001")
            (tmp_path / "b" / folder / target).write_bytes(path.read_bytes())
    found = copied.latest()
    assert found is not None
    assert found.name == "manifests/00000001-00000001-step-1.json"
    assert "of another prefix, job 'research/a'" in copied.rejected[0].why
    assert copied.counts.rejected == f"{copied.rejected[0].manifest}: {copied.rejected[0].why}"


def test_saving_does_not_wait_for_the_store(folder: str, opened: Open, stalled: threading.Event) -> None:
    checkpoints = opened(folder, interval_steps=1)
    snapshot = small(1)
    checkpoints.save(snapshot, step=1, world_size=1, reason="interval")
    assert checkpoints.busy
    assert not checkpoints.due(2), "one at a time"
    assert not checkpoints.flush(0.01)
    snapshot["step"] = 99
    stalled.set()
    assert checkpoints.flush(30)
    assert checkpoints.counts.durable == 1
    found = checkpoints.latest()
    assert found is not None
    assert same(found.load(), small(1)), "plain values are those at the time of save()"


def test_a_buffer_overwritten_while_held_never_becomes_a_checkpoint(
    folder: str, opened: Open, stalled: threading.Event
) -> None:
    checkpoints = opened(folder)
    snapshot = small(1)
    checkpoints.save(snapshot, step=1, world_size=1, reason="interval")
    weight = snapshot["weight"]
    assert isinstance(weight, torch.Tensor)
    weight.copy_(torch.zeros(7))
    stalled.set()
    assert not checkpoints.flush(30)
    assert "overwritten while it was held" in checkpoints.counts.error
    assert checkpoints.latest() is None
    assert checkpoints._claim.store.keys("data") == ()


def test_a_second_save_waits_for_the_first(folder: str, opened: Open, stalled: threading.Event) -> None:
    checkpoints = opened(folder)
    checkpoints.save(small(1), step=1, world_size=1, reason="interval")
    second = threading.Thread(
        target=checkpoints.save, args=(small(2),), kwargs={"step": 2, "world_size": 1, "reason": "sigterm"}
    )
    second.start()
    assert checkpoints.counts.started == 1
    stalled.set()
    second.join(30)
    assert checkpoints.flush(30)
    assert checkpoints.counts.durable == 2


def test_closing_gives_up_a_save_in_progress(folder: str, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = opened(f"{folder}&threads=1")
    first, real = threading.Event(), FileUpload.put

    def put(upload: FileUpload, *part: Any) -> None:
        first.set()
        assert checkpoints._stop.wait(30)
        real(upload, *part)

    monkeypatch.setattr(FileUpload, "put", put)
    checkpoints.save(large(1), step=1, world_size=1, reason="interval")
    assert first.wait(30)
    checkpoints.close()
    wait_for(lambda: not checkpoints.busy)
    assert "closed during a checkpoint" in checkpoints.counts.error
    assert checkpoints._claim.store.keys("manifests") == checkpoints._claim.store.keys("data") == ()


def test_what_cannot_be_stored_is_reported_to_the_caller_at_once(folder: str, opened: Open) -> None:
    checkpoints = opened(folder)
    with pytest.raises(CaptureError, match="hook: function: use plain values"):
        checkpoints.save({"hook": save}, step=1, world_size=1, reason="interval")
    assert not checkpoints.busy
    save(checkpoints, 2)


def test_when_one_is_due(folder: str, opened: Open) -> None:
    now = 0.0
    checkpoints = opened(folder, interval_seconds=60, interval_steps=100, clock=lambda: now)
    assert not checkpoints.due(99)
    assert checkpoints.due(100), "by steps"
    now = 60.0
    assert checkpoints.due(1), "by seconds"
    save(checkpoints, 1)
    settle(checkpoints)
    assert not checkpoints.due(100)
    assert checkpoints.due(101)


def test_the_interval_goes_on_from_what_was_resumed(folder: str, opened: Open) -> None:
    save(opened(folder), 500)
    checkpoints = opened(folder, "two", interval_seconds=None, interval_steps=100)
    assert checkpoints.latest() is not None
    assert not checkpoints.due(599)
    assert checkpoints.due(600)
    assert checkpoints.counts.durable_step == 500


def test_a_bug_in_the_background_is_counted_and_named(
    folder: str, opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FileUpload, "finish", lambda _: 1 / 0)
    checkpoints = opened(folder)
    checkpoints.save(small(1), step=1, world_size=1, reason="interval")
    assert not checkpoints.flush(30)
    assert checkpoints.counts.error == "division by zero"
    assert "ZeroDivisionError" in caplog.text


WRITER = """
import itertools, sys, torch
from hvd_elastic.trainer.checkpoint import open_checkpoints
url, incarnation = sys.argv[1:]
checkpoints = open_checkpoints(url, job="research/a", incarnation=incarnation, keep=2)
found = checkpoints.latest()
step = found.step if found else 0
if found:
    assert torch.equal(found.load()["weight"], torch.full((1 << 20,), float(step)))
print("resumed", step, flush=True)
buffers = itertools.cycle([torch.empty(1 << 20), torch.empty(1 << 20)])
for step in itertools.count(step + 1):
    buffer = next(buffers)
    buffer.fill_(step)
    checkpoints.save({"weight": buffer}, step=step, world_size=1, reason="interval")
    if checkpoints.counts.durable_step:
        print("durable", checkpoints.counts.durable_step, flush=True)
"""


@pytest.mark.core
@pytest.mark.process
@pytest.mark.parametrize("victim_lines", [2, 5])
def test_sigkill_at_any_moment_costs_at_most_the_save_in_progress(url: str, opened: Open, victim_lines: int) -> None:
    durable = 0
    for incarnation in ("one", "two"):
        process = subprocess.Popen(
            [*forkserver.python(), "-c", WRITER, url, incarnation],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        try:
            lines = list(itertools.islice(process.stdout, victim_lines))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        finally:
            process.kill()
            process.wait(30)
            process.stdout.close()
        resumed = int(lines[0].split()[1])
        assert resumed in {durable, durable + 1}, "the newest one reported as durable, or the one after it"
        durable = int(lines[-1].split()[1])
    found = opened(url, "three").latest()
    assert found is not None
    assert found.step in {durable, durable + 1}


def test_why_nothing_gets_durable_is_known_in_the_process_before_the_tier_is_open(tmp_path: Path, opened: Open) -> None:
    folder = tmp_path / "checkpoints"
    folder.write_text("no folder")
    with pytest.raises(StoreError):
        opened(f"file://{folder}")
    assert str(folder) in save_error_of_this_process()
    folder.unlink()
    checkpoints = opened(f"file://{folder}")
    assert save_error_of_this_process() == ""
    save(checkpoints, 1)
    settle(checkpoints)
    folder.rename(tmp_path / "aside")
    folder.write_text("no folder")
    checkpoints.save(small(2), step=2, world_size=1, reason="interval")
    assert not checkpoints.flush(60)
    assert str(folder) in save_error_of_this_process()
