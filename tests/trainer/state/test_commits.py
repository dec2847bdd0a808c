"""From a commit in memory to a durable one: who waits for the store, and what overlaps."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_CHECKPOINT_STEPS
from hvd_elastic.stores.file_store import FileStore, FileUpload
from hvd_elastic.stores.retry import TransientError
from hvd_elastic.trainer.checkpoint import FencedError, SaveCounts, StoreError
from hvd_elastic.trainer.data.sample_certificate import Certificate
from hvd_elastic.trainer.elastic import departure
from hvd_elastic.trainer.state.commits import FINAL_SECONDS, Commits
from hvd_elastic.trainer.state.durable.durable_tier import DurableTier, TierSettings
from hvd_elastic.trainer.state.memory.host_memory import HostMemory
from tests.trainer.checkpoint.proxy import wait_for

INTERVAL = 3


class Training:
    """One process that commits: each commit's tensor holds its own number."""

    def __init__(self) -> None:
        self.commits = Commits(HostMemory(overlap=True), DurableTier(TierSettings()))
        self.weight = torch.zeros(1000)
        self.values: dict[str, object] = {}
        self.commits.durable.open("lineage")

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            self.commits.memory.fence()
            self.weight += 1
            step = int(self.weight[0])
            progress = {"commits": step, "size": 1}
            tree = {"weight": self.weight, "values": dict(self.values), "progress": progress}
            self.commits.save_to_memory(tree, owned=lambda: {self.weight.data_ptr()})

    @property
    def newest(self) -> int | None:
        """Step of the newest checkpoint; its content is checked."""
        newest = self.commits.durable.newest()
        if newest is None:
            return None
        found: dict[str, Any] = newest.load()
        step = int(found["progress"]["commits"])
        assert found["weight"].tolist() == [float(step)] * 1000
        return step

    def settle(self) -> None:
        """Wait for the save in progress and the deletions that follow it."""
        assert self.commits.durable.wait_idle(30)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    monkeypatch.setenv(ENV_CHECKPOINT, f"file://{tmp_path}/durable")
    monkeypatch.setenv(ENV_CHECKPOINT_STEPS, str(INTERVAL))
    made = Training()
    yield made
    made.commits.durable.close()


def saves(training: Training) -> SaveCounts:
    assert training.commits.durable._checkpoints is not None
    return training.commits.durable._checkpoints.counts


class SlowStore:
    """A store that takes each archive only when the test lets it."""

    def __init__(self, put: Callable[..., None]) -> None:
        self.asked, self.answers = threading.Semaphore(0), threading.Semaphore(0)
        self._put = put

    def put(self, *arguments: object) -> None:
        self.asked.release()
        assert self.answers.acquire(timeout=5), "training waits for the store"
        self._put(*arguments)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SlowStore:
    slow = SlowStore(FileUpload.put)

    def put(*arguments: object) -> None:
        slow.put(*arguments)

    monkeypatch.setattr(FileUpload, "put", put)
    return slow


def test_an_emergency_that_comes_too_late_does_no_harm_to_the_save_in_progress(
    training: Training, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save in progress reads one set of buffers. The emergency never began, so it must not claim the other."""
    monkeypatch.setattr(departure, "checkpoint_seconds", lambda: 0.05)
    training.commit(INTERVAL + 1)
    assert store.asked.acquire(timeout=5)
    training.commit()
    assert not training.commits.save_to_store_sync("below-min")
    training.commit(4)
    store.answers.release()
    training.settle()
    assert training.newest == INTERVAL
    training.commit()
    store.answers.release()
    training.settle()
    assert training.newest == training.commits.step - 1, "what could not be stored in time is stored as soon as it can"


def test_an_emergency_waits_for_the_save_in_progress_and_then_stores_its_own(
    training: Training, store: SlowStore
) -> None:
    training.commit(INTERVAL + 1)
    assert store.asked.acquire(timeout=5)
    store.answers.release(2)
    assert training.commits.save_to_store_sync("below-min")
    training.settle()
    assert training.newest == INTERVAL + 1


def test_an_emergency_for_a_commit_that_is_being_stored_stores_it_once(training: Training, store: SlowStore) -> None:
    training.commit(INTERVAL)
    training.commits.save_to_store_async()
    assert store.asked.acquire(timeout=5)
    store.answers.release()
    assert training.commits.save_to_store_sync("below-min")
    training.settle()
    assert training.newest == INTERVAL
    assert saves(training).started == 1


def test_no_commit_waits_for_a_slow_store(training: Training, store: SlowStore) -> None:
    """Not even if a commit is asked for while another is being stored: it is stored after that one."""
    training.commit(INTERVAL + 1)
    assert store.asked.acquire(timeout=5)
    training.commits.save_to_store_async()
    training.commit(5)
    training.commits.save_to_store_async()
    training.commit(5)
    assert training.commits.durable.busy, "the first upload has not ended"
    assert training.commits.durable.durable_step is None
    store.answers.release()
    training.settle()
    training.commit()
    store.answers.release()
    training.settle()
    assert training.newest == training.commits.step - 1


def test_a_value_that_becomes_unstorable_costs_a_warning_and_not_the_job(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    training.commit(INTERVAL + 1)
    training.settle()
    training.values["when"] = threading.Event
    training.commit()
    training.commits.save_to_store_async()
    training.commit()
    training.settle()
    assert "values.when" in caplog.text
    training.commit()
    assert not training.commits.save_to_store_sync("below-min")
    assert training.newest == INTERVAL
    training.values["when"] = "tomorrow"
    training.commit()
    assert training.commits.save_to_store_sync("below-min")
    assert training.newest == training.commits.step


def test_the_end_of_training_stores_what_the_interval_did_not(training: Training) -> None:
    training.commit(INTERVAL - 1)
    training.commits.save_final()
    assert training.newest == INTERVAL - 1


def test_the_end_of_training_waits_for_the_save_in_progress(training: Training, store: SlowStore) -> None:
    training.commit(INTERVAL + 1)
    assert store.asked.acquire(timeout=5)
    store.answers.release(2)
    training.commit()
    training.commits.save_final()
    assert training.newest == INTERVAL + 2


def test_what_is_durable_is_not_stored_again_at_the_end(training: Training) -> None:
    """Neither by a second call, nor by a job that was finished and is started again."""
    training.commit()
    training.commits.save_final()
    training.commits.save_final()
    assert saves(training).started == 1
    training.commits.durable.close()
    again = Training()
    assert again.newest == 1
    again.commit()
    again.commits.save_final()
    assert saves(again).started == 0
    again.commits.durable.close()


def test_a_script_may_train_on_after_its_final_checkpoint(training: Training) -> None:
    for _ in range(2):
        training.commit()
        training.commits.save_final()
        assert training.newest == training.commits.step


@pytest.fixture
def pauses(training: Training, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of the end of training, which pass at once."""
    taken: list[float] = []

    def sleep(seconds: float) -> None:
        taken.append(seconds)
        now[0] += seconds

    now = [0.0]
    monkeypatch.setattr(training.commits, "_clock", lambda: now[0])
    monkeypatch.setattr(training.commits, "_sleep", sleep)
    return taken


def test_the_end_of_training_asks_a_store_again_that_is_away(
    training: Training, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FileStore.start_upload

    def away(store: FileStore, key: str, size_bytes: int) -> FileUpload:
        if len(pauses) < 3:
            raise TransientError("no answer")
        return start(store, key, size_bytes)

    monkeypatch.setattr(FileStore, "start_upload", away)
    training.commit()
    training.commits.save_final()
    assert len(pauses) == 3
    assert training.newest == 1


@pytest.mark.parametrize("error", [TransientError, StoreError])
def test_the_end_of_training_does_not_wait_for_ever(
    training: Training,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    def away(*_: object) -> None:
        raise error("no answer")

    monkeypatch.setattr(FileStore, "start_upload", away)
    training.commit()
    training.commits.save_final()
    assert sum(pauses) == pytest.approx(FINAL_SECONDS if error is TransientError else 0.0)
    assert "the last commit of training, step 1, is not durable" in caplog.text


def test_the_end_of_a_training_that_was_fenced_out_is_no_success(training: Training) -> None:
    training.commit()
    again = Training()
    with pytest.raises(FencedError, match="this process no longer writes"):
        training.commits.save_final()
    again.commits.durable.close()


def test_an_upload_that_is_given_up_is_not_waited_for(training: Training, store: SlowStore) -> None:
    """Another process becomes rank 0: the whole world would wait for the former one."""
    training.commit(INTERVAL + 1)
    assert store.asked.acquire(timeout=5)
    checkpoints = training.commits.durable._checkpoints
    assert checkpoints is not None
    training.commits.durable.close()
    assert checkpoints.busy, "its upload has not ended"
    assert not training.commits.durable.busy
    training.commit(4)
    store.answers.release()
    wait_for(lambda: not checkpoints.busy)
    training.commits.durable.open("lineage")
    assert training.newest in {None, INTERVAL}, "whole, or not there"


def test_a_commit_is_not_stored_before_it_is_complete(training: Training) -> None:
    training.commit(INTERVAL)
    training.settle()
    assert saves(training).started == 1
    for step in range(INTERVAL + 1, 2 * INTERVAL + 1):
        training.commits.memory.fence()
        training.weight += 1
        training.commits.save_to_memory(certified(training, step), owned=set, is_complete=False)
    training.commits.save_to_store_async()
    assert saves(training).started == 1, "it is due, and is not complete"
    training.commits.complete(Certificate(digest=7))
    training.settle()
    assert saves(training).started == 2
    newest = training.commits.durable.newest()
    assert newest is not None
    stored: Any = newest.load()
    assert stored["progress"]["data"] == {"certificate": Certificate(digest=7).state_dict()}


def test_a_commit_that_was_stored_before_it_was_complete_is_not_changed(training: Training) -> None:
    """Its world was lost on the way: the process that leaves stores what it holds."""
    training.commits.save_to_memory(certified(training, 1), owned=set, is_complete=False)
    assert training.commits.save_to_store_sync("a test")
    training.commits.complete(Certificate(digest=7))
    assert training.commits.last["progress"]["data"] == {"certificate": Certificate().state_dict()}


def certified(training: Training, step: int) -> dict[str, Any]:
    """What is committed, with the certificate as it is before all workers have told."""
    data = {"certificate": Certificate().state_dict()}
    return {"weight": training.weight, "values": {}, "progress": {"commits": step, "size": 1, "data": data}}
