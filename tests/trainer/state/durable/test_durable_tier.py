import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT,
    ENV_CHECKPOINT_KEEP,
    ENV_CHECKPOINT_SECONDS,
    ENV_CHECKPOINT_STEPS,
    ENV_INCARNATION,
    ENV_JOB,
)
from hvd_elastic.policy.checkpoint_interval import LossHistory
from hvd_elastic.stores.file_store import FileStore
from hvd_elastic.stores.retry import TransientError
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.trainer.checkpoint import (
    Checkpoints,
    CorruptError,
    FencedError,
    PrefixOwnedError,
    StoreError,
    open_checkpoints,
)
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.durable import durable_tier, tier_opening
from hvd_elastic.trainer.state.durable.durable_tier import START_SECONDS, DurableTier, TierSettings
from hvd_elastic.trainer.state.memory.host_memory import HostMemory
from tests.trainer.checkpoint.proxy import wait_for


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {
        ENV_CHECKPOINT: f"file://{folder}",
        ENV_JOB: "job",
        ENV_INCARNATION: "first",
        ENV_CHECKPOINT_STEPS: "2",
        **more,
    }


def tier_of(environ: dict[str, str], **options: Any) -> DurableTier:
    return DurableTier(TierSettings(environ=environ), **options)


def test_without_a_url_there_is_no_tier() -> None:
    tier = tier_of({})
    tier.open("lineage")
    assert not tier.settings.configured
    assert not tier.due(1000)
    assert tier.newest() is None
    tier.save({}, step=1, size=1, reason="sigterm")
    assert not tier.idle
    assert not tier.wait_idle(20)
    assert tier.flush()
    tier.close()


def test_the_environment_is_read_when_the_tier_is_opened(tmp_path: Path) -> None:
    """A standby creates its State before it knows its job."""
    known: dict[str, str] = {}
    tier = tier_of(known)
    known.update(environ(tmp_path))
    assert tier.settings.configured
    tier.open("lineage")
    tier.save({"weights": torch.ones(3)}, step=1, size=2, reason="sigterm")
    assert tier.flush(20)
    found = tier.newest()
    assert found is not None
    weights = found.load()["weights"]
    assert isinstance(weights, torch.Tensor)
    assert weights.tolist() == [1.0, 1.0, 1.0]
    tier.close()


def kept(folder: Path, environ: dict[str, str], keep: int = 3) -> int:
    tier = DurableTier(TierSettings(script_url=f"file://{folder}", script_keep=keep, environ=environ))
    tier.open("lineage")
    assert tier._checkpoints is not None
    for step in range(1, 7):
        tier._checkpoints.save({"step": step}, step=step, world_size=1, reason="interval")
        assert tier._checkpoints.wait_idle(20)
    tier.close()
    return len(list((folder / "manifests").iterdir()))


def test_the_number_that_is_kept_is_the_jobs_or_the_scripts(tmp_path: Path) -> None:
    assert kept(tmp_path / "a", {}) == 3
    assert kept(tmp_path / "b", {}, keep=2) == 2
    assert kept(tmp_path / "c", {ENV_CHECKPOINT_KEEP: "1"}, keep=2) == 1


def test_a_job_cannot_take_anothers_prefix(tmp_path: Path) -> None:
    first = tier_of(environ(tmp_path))
    first.open("lineage")
    first.close()
    with pytest.raises(PrefixOwnedError):
        tier_of(environ(tmp_path, **{ENV_JOB: "other"})).open("lineage")


class Away:
    """Stands for `open_checkpoints` while the store is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[Exception] = TransientError) -> None:
        self.attempts = threading.Semaphore(0)
        self.back = threading.Event()
        self._error = error
        monkeypatch.setattr(durable_tier, "open_checkpoints", self)
        monkeypatch.setattr(tier_opening, "BACKOFF", Backoff(first_seconds=0.001, most_seconds=0.001))

    def __call__(self, *arguments: Any, **options: Any) -> Checkpoints:
        self.attempts.release()
        if self.back.is_set():
            return open_checkpoints(*arguments, **options)
        raise self._error("no answer")

    def wait_for_attempts(self, number: int) -> None:
        for _ in range(number):
            assert self.attempts.acquire(timeout=10)


@pytest.mark.parametrize("error", [TransientError, StoreError, CorruptError, RuntimeError])
def test_training_continues_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """A new rank 0 holds the state, so it needs no store, however long that is away. The log says so once."""
    away = Away(monkeypatch, error)
    tier = tier_of(environ(tmp_path))
    tier.open_in_background("lineage")
    away.wait_for_attempts(3)
    assert tier.is_writer
    assert not tier.due(1)
    assert not tier.idle
    assert caplog.text.count("cannot be opened") == 1
    assert "no answer" in caplog.text
    away.back.set()
    assert tier.wait_idle(10)
    assert "the durable tier is open" in caplog.text
    assert tier.due(1)
    assert not tier.due(1)
    tier.close()


def test_a_writer_that_is_superseded_while_it_opens_the_tier_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Away(monkeypatch, FencedError)
    tier = tier_of(environ(tmp_path))
    tier.open_in_background("lineage")
    with pytest.raises(FencedError):
        wait_for(lambda: tier.due(1))
    tier.close()


def test_an_opening_that_is_given_up_takes_nothing_from_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs in a request; meanwhile another process becomes rank 0. When the answer comes, it must not claim."""
    asked, answer = threading.Event(), threading.Event()
    keys = FileStore.keys

    def slow(store: FileStore, folder: str) -> tuple[str, ...]:
        if threading.current_thread().name == "checkpoint-open":
            asked.set()
            assert answer.wait(10)
        return keys(store, folder)

    monkeypatch.setattr(FileStore, "keys", slow)
    former = tier_of(environ(tmp_path))
    former.open_in_background("lineage")
    assert asked.wait(10)
    opening = former._opening
    assert opening is not None
    former.close()
    assert not former.is_writer
    writer = tier_of(environ(tmp_path))
    writer.open("lineage")
    answer.set()
    opening.wait(10)
    assert opening.take() is None
    writer.save({"a": 1}, step=1, size=1, reason="interval")
    assert writer.flush(10)
    writer.close()


def test_an_emergency_waits_for_the_tier_that_is_being_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(monkeypatch)
    tier = DurableTier(TierSettings(script_url=f"file://{tmp_path}"))
    commits = Commits(HostMemory(overlap=True), tier)
    commits.durable.open_in_background("lineage")
    away.wait_for_attempts(2)
    commits.save_to_memory({"progress": {"commits": 1, "size": 1}}, owned=set)
    away.back.set()
    assert commits.save_to_store_sync("below-min")
    commits.durable.close()


def test_the_start_waits_for_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No process holds a state, so without the store nothing is known."""
    away = Away(monkeypatch)
    tier = tier_of(environ(tmp_path), sleep=lambda _: away.back.set())
    assert tier.restore("lineage") is None
    assert "the store does not answer, the job waits" in caplog.text
    assert tier.is_writer
    tier.close()


def test_the_start_waits_while_the_checkpoints_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tier_of(environ(tmp_path))
    first.open("lineage")
    first.save({"a": 1}, step=1, size=1, reason="interval")
    assert first.flush(10)
    first.close()

    def away(*_: object) -> None:
        raise TransientError("no answer")

    tier = tier_of(environ(tmp_path), sleep=lambda _: monkeypatch.undo())
    monkeypatch.setattr(FileStore, "read_into", away)
    found = tier.restore("lineage")
    assert found is not None
    assert found.load() == {"a": 1}
    tier.close()


def test_the_start_does_not_wait_for_ever_and_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Away(monkeypatch)
    now = [0.0]

    def sleep(seconds: float) -> None:
        assert 0 < seconds <= START_SECONDS
        now[0] += seconds

    tier = tier_of(environ(tmp_path), clock=lambda: now[0], sleep=sleep)
    with pytest.raises(StoreError, match=r"no answer\n.*start it again"):
        tier.restore("lineage")
    assert now[0] == pytest.approx(START_SECONDS)


@pytest.mark.parametrize("error", [StoreError, PrefixOwnedError, FencedError, CorruptError])
def test_the_start_does_not_wait_for_a_store_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """No bucket, no right, another job's prefix: that does not pass."""
    Away(monkeypatch, error)
    tier = tier_of(environ(tmp_path), sleep=lambda _: pytest.fail("it waits"))
    with pytest.raises(error, match="no answer"):
        tier.restore("lineage")


def test_a_new_writer_stores_its_first_commit(tmp_path: Path) -> None:
    """Former writers may have been interrupted, one after the other: the interval must not start again each time."""
    first = tier_of(environ(tmp_path))
    first.open("lineage")
    first.open_in_background("lineage")
    assert not first.due(1), "it was already the writer"
    second = tier_of(environ(tmp_path))
    second.open_in_background("lineage")
    assert second.wait_idle(10)
    assert second.due(1)
    assert not second.due(1)
    first.close()
    second.close()


def test_an_automatic_interval_follows_the_cost_of_saves_and_the_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    monkeypatch.setattr(
        durable_tier, "open_checkpoints", lambda *args, **more: open_checkpoints(*args, **more, clock=lambda: now)
    )
    tier = tier_of({**environ(tmp_path), ENV_CHECKPOINT_STEPS: "", ENV_CHECKPOINT_SECONDS: "auto"})
    tier.open("lineage")
    quiet, often = (LossHistory(trained_seconds=7200.0 * count, losses=losses) for count, losses in ((99, 0), (1, 99)))
    now = 59.0
    assert not tier.due(1, often), "nothing is measured yet"
    now = 60.0
    assert tier.due(1, quiet)
    for seconds in [0.1] * 20:
        tier.note_step(seconds)
    tier.save({"a": 1}, step=1, size=1, reason="interval")
    assert tier.wait_idle(30)
    for seconds in (0.6, 0.1):  # the save took half a second
        tier.note_step(seconds)
    now += 60.0
    assert tier.due(2, often)
    assert not tier.due(2, quiet)
    assert not tier.due(2, quiet)
    assert [line for line in caplog.messages if "costs 0.50 s" in line] == [
        "durable checkpoints each 12 s: one costs 0.50 s, and all copies of the state were lost 99 times in 2.0 h",
        "durable checkpoints each 849 s: one costs 0.50 s, and all copies of the state were lost 0 times in 198.0 h",
    ]
    now += 1800.0
    assert tier.due(2, quiet), "never longer than half an hour"
    tier.close()


def test_an_interval_that_the_job_names_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(
        durable_tier, "open_checkpoints", lambda *args, **more: open_checkpoints(*args, **more, clock=lambda: now)
    )
    tier = tier_of({**environ(tmp_path), ENV_CHECKPOINT_STEPS: "", ENV_CHECKPOINT_SECONDS: "3600"})
    tier.open("lineage")
    now = 3599.0
    assert not tier.due(1, LossHistory(losses=1000))
    now = 3600.0
    assert tier.due(1)
    tier.close()
