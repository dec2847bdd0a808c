"""What a rank says and leaves behind when it gets on with nothing; its thread's looks are taken one by one here."""

import json
import logging
import threading
from pathlib import Path

import horovod.torch as hvd
import pytest

from hvd_elastic.mpijob.contract import ENV_RUN_DIR, ENV_STALL_SECONDS, STALL_SECONDS
from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls
from hvd_elastic.trainer.elastic.mistakes.early_end import EarlyEnd
from hvd_elastic.trainer.elastic.stalls.deadlock_search import DeadlockSearch, StandingRank
from hvd_elastic.trainer.elastic.stalls.stall_watch import StallSettingError, StallWatch, stall_seconds
from hvd_elastic.trainer.telemetry.code_places import place_of


class NobodyLeft(EarlyEnd):
    """Nobody has left its training function, until `who` is set."""

    who: str | None = None

    def find(self, _spell: int) -> str | None:
        return self.who


class NoDeadlock(DeadlockSearch):
    """There is none, until `found` is set."""

    found: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[int, int, StandingRank]] = []

    def look(self, rank: int, size: int, standing: StandingRank) -> str | None:
        self.looks.append((rank, size, standing))
        return self.found


class Rank:
    """Rank 1 of 2, with a clock that the test sets and without a thread."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(ENV_RUN_DIR, str(folder))
        monkeypatch.setattr(CollectiveCalls, "install", lambda _: None)
        monkeypatch.setattr(StallWatch, "_start", lambda _: None)
        self.now, self.folder = 1000.0, folder
        self.calls = CollectiveCalls(clock=lambda: self.now)
        self.left = NobodyLeft()
        self.ended: list[str] = []
        self.deadlocks = NoDeadlock()
        self.watch = StallWatch(
            self.calls, self.left, self.deadlocks, clock=lambda: self.now, give_up=self.ended.append
        )
        self.begin = self.calls.named(lambda name, process_set: 7, "allreduce")

    def waits(self, *looks: float, name: str = "loss") -> None:
        """Wait in an allreduce, with a look after so many seconds each."""

        def wait(_: int) -> None:
            began = self.now
            for seconds in looks:
                self.now = began + seconds
                self.watch.look()

        self.calls.watched(wait)(self.begin(name, process_set=hvd.global_process_set))

    def word(self) -> dict[str, object] | None:
        path = self.folder / "wait.0"
        return dict(json.loads(path.read_text())) if path.exists() else None


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rank:
    return Rank(tmp_path, monkeypatch)


def test_a_wait_is_said_and_left_as_a_word_until_it_is_over(rank: Rank, caplog: pytest.LogCaptureFixture) -> None:
    with rank.watch.training(1, 2, 0):
        rank.watch.note_step(41)
        rank.waits(4.0)
        assert rank.word() is None, "it may end at any moment"
        rank.waits(6.0, 31.0)
        word = rank.word()
        assert word is not None
        assert word.pop("place").startswith("test_stall_watch.py:")  # type: ignore[attr-defined]
        assert word == {
            "rank": 1, "size": 2, "step": 41, "seconds": 31.0, "after": 30.0, "operation": "allreduce loss",
        }  # fmt: skip
        rank.watch.look()
        assert rank.word() is None
    said = [record.getMessage().partition(", at")[0] for record in caplog.records]
    assert said == [
        "rank 1 has waited 31 s in allreduce loss (step 41)",
        "rank 1 goes on after 31 s, in which it waited in allreduce loss",
    ]


def test_a_rank_that_computes_is_not_said_to_wait(rank: Rank, caplog: pytest.LogCaptureFixture) -> None:
    with rank.watch.training(1, 2, 0):
        rank.now += 31.0
        rank.watch.look()
        word = rank.word()
    assert word is not None
    assert "operation" not in word
    assert caplog.messages[0].startswith("rank 1 has computed for 31 s without a collective operation, at test_stall_")
    assert rank.word() is None, "training has ended"


def test_a_wait_for_the_store_is_not_watched(rank: Rank, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with rank.watch.training(1, 2, 0):
        with rank.watch.paused():
            rank.waits(50.0, 100.0, name="hvd_elastic.durable")
        rank.watch.look()
    with rank.watch.training(1, 2, 0):
        rank.watch.look()
    assert caplog.messages == []
    assert rank.word() is None


def test_the_time_can_be_set_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stall_seconds() == STALL_SECONDS
    for given, seconds in (("7.5", 7.5), ("0", 0.0), (" ", STALL_SECONDS)):
        monkeypatch.setenv(ENV_STALL_SECONDS, given)
        assert stall_seconds() == seconds
    for given in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv(ENV_STALL_SECONDS, given)
        with pytest.raises(StallSettingError, match=f"{given}' is not a number of seconds; 0 turns"):
            stall_seconds()


def test_a_place_is_the_scripts_own_line() -> None:
    entered, done = threading.Event(), threading.Event()

    def evaluate() -> None:
        entered.set()
        done.wait(60.0)

    thread = threading.Thread(target=evaluate)
    thread.start()
    entered.wait(60.0)
    try:
        assert thread.ident is not None
        line = evaluate.__code__.co_firstlineno + 2
        for _ in range(10_000):  # until it is in the wait
            if "wait" in place_of(thread.ident, library=True):
                break
        assert place_of(thread.ident) == f"test_stall_watch.py:{line} in evaluate"
        assert place_of(thread.ident, library=True) == f"test_stall_watch.py:{line} in evaluate (threading.wait)"
    finally:
        done.set()
        thread.join()
    assert place_of(thread.ident) == ""


def test_a_wait_for_a_rank_that_has_left_ends_the_process(rank: Rank) -> None:
    rank.left.who = "rank 0 has left its training function after step 40"
    with rank.watch.training(1, 2, 0):
        rank.waits(1.0)
        assert not rank.ended, "a collective may take that long"
        rank.waits(6.0)
        assert len(rank.ended) == 1
        assert rank.ended[0].startswith(f"{rank.left.who}, while rank 1 waits for it in allreduce loss, at ")


def test_a_rank_that_computes_waits_for_nobody(rank: Rank) -> None:
    rank.left.who = "rank 0 has left its training function after step 40"
    with rank.watch.training(1, 2, 0):
        rank.now += 100.0
        rank.watch.look()
        assert not rank.ended


def test_a_wait_outside_of_training_is_told_sooner_and_only_in_the_log(
    rank: Rank, caplog: pytest.LogCaptureFixture
) -> None:
    rank.watch.enter_world(1, 2)
    rank.waits(9.0, 10.0, 11.0, 20.0, name="vocab")
    assert rank.word() is None
    rank.watch.look()
    said = [record.getMessage().partition(", at")[0] for record in caplog.records]
    assert said == [
        "rank 1 has waited 10 s in allreduce vocab",
        "rank 1 has waited 20 s in allreduce vocab",
        "rank 1 goes on after 20 s, in which it waited in allreduce vocab",
    ]
    assert caplog.messages[0].partition(", at ")[2].startswith("test_stall_watch.py:")


def test_outside_of_training_a_rank_may_compute_for_hours(rank: Rank, caplog: pytest.LogCaptureFixture) -> None:
    rank.watch.enter_world(1, 2)
    for _ in range(100):
        rank.now += 100.0
        rank.watch.look()
    with rank.watch.training(1, 2, 0):
        rank.watch.look()
    with rank.watch.paused():
        rank.waits(50.0, 100.0, name="hvd_elastic.end")
    assert caplog.messages == []


def test_outside_of_training_the_watch_can_be_turned_off(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[StallWatch] = []

    def start(watch: StallWatch) -> None:
        started.append(watch)

    monkeypatch.setattr(StallWatch, "_start", start)
    monkeypatch.setenv(ENV_STALL_SECONDS, "soon")
    rank.watch.enter_world(1, 2)
    assert len(started) == 1, "what is no number is told where training begins"
    monkeypatch.setenv(ENV_STALL_SECONDS, "0")
    rank.watch.enter_world(1, 2)
    assert len(started) == 1


def test_a_wait_that_nothing_can_end_ends_the_process(rank: Rank) -> None:
    rank.deadlocks.found = "rank 0 waits in allreduce a at train.py:1 in train, and rank 1 in barrier at train.py:2"
    with rank.watch.training(1, 2, 0), rank.watch.paused():
        rank.waits(100.0)
    with rank.watch.training(1, 2, 0):
        rank.now += 100.0
        rank.watch.look()
        rank.waits(1.0, 4.0)
    assert not rank.deadlocks.looks, "a wait of ours, one that computes, and a short wait"
    with rank.watch.training(1, 2, 0):
        rank.waits(5.0)
    rank.watch.enter_world(1, 3)
    rank.waits(6.0)
    assert [(each, size, standing.operation) for each, size, standing in rank.deadlocks.looks] == [
        (1, 2, "allreduce loss"), (1, 3, "allreduce loss"),
    ]  # fmt: skip
    assert len(rank.ended) == 2
    assert rank.ended[0].startswith(f"{rank.deadlocks.found}: neither can ever be done")
    assert "elastic.agree(...)" in rank.ended[0]
