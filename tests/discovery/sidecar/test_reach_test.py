import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.rules.views import WorkerView
from hvd_elastic.discovery.sidecar.reach_test import MISSES, Prober, Tally, Views, ask_for_checkpoint, parse_ready_line
from hvd_elastic.mpijob.contract import WorkerState
from tests.discovery.conftest import until
from tests.discovery.workers import Workers

A, B = "127.0.3.1", "127.0.3.2"


INTERVAL_SECONDS = 0.02


class Asked:
    def __init__(self, workers: Workers, **addresses: str) -> None:
        self.told: list[Views] = []
        self.prober = Prober(
            self.told.append, port=workers.port, interval_seconds=INTERVAL_SECONDS, timeout_seconds=0.1
        )
        self.prober.aim(addresses)

    def until_told(self, count: int) -> WorkerView:
        while len(self.told) < count:
            self.prober.turn()
        (view,) = self.told[count - 1].values()
        return view

    def asks(self, count: int) -> None:
        already = self.prober.asked
        while self.prober.asked < already + count:
            self.prober.turn()


@pytest.fixture
def asked(workers: Workers) -> Iterator[Asked]:
    made = Asked(workers, a=A)
    yield made
    made.prober.close()


def test_hears_what_a_worker_says(workers: Workers, asked: Asked) -> None:
    workers.say(A, generation=3, state=WorkerState.TRAINING, step=70)
    assert asked.until_told(1) == WorkerView(generation=3, state=WorkerState.TRAINING, step=70)


def test_tells_what_changes_and_not_each_step(workers: Workers, asked: Asked) -> None:
    asked.until_told(1)
    workers.say(A, step=5)
    asked.asks(5)
    assert len(asked.told) == 1
    assert asked.prober.views["a"].step == 5
    workers.say(A, generation=1)
    assert asked.until_told(2).generation == 1


def test_three_misses_and_it_is_out_until_it_answers(workers: Workers) -> None:
    asked = Asked(workers, a=A, b=B)
    while not {"a", "b"} <= {uid for told in asked.told for uid in told}:
        asked.prober.turn()
    workers.silent.add(A)
    count = len(asked.told)
    assert asked.until_told(count + 1).lost
    assert asked.prober.missed >= MISSES
    workers.silent.clear()
    assert not asked.until_told(count + 2).lost
    asked.prober.close()


def test_where_nobody_answers_nobody_is_out(workers: Workers, asked: Asked) -> None:
    asked.until_told(1)
    workers.closed.add(A)
    asked.asks(MISSES + 3)
    assert len(asked.told) == 1
    assert asked.prober.is_suspect


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH\n", b"hvd-elastic 2 0 waiting 0 0\n", b"\xff\n", b"hvd-elastic 1 x\n"]
)
def test_another_service_on_the_port_is_a_miss(workers: Workers, asked: Asked, said: bytes) -> None:
    with pytest.raises(ValueError):
        parse_ready_line(said)
    workers.says[A] = said
    asked.asks(3)
    assert asked.told == []
    assert asked.prober.missed >= 2


def test_asks_no_longer_who_is_gone(workers: Workers, asked: Asked) -> None:
    asked.until_told(1)
    asked.prober.aim({"b": B})
    assert set(asked.told[-1]) == {"a"}
    asked.until_told(2)
    assert set(asked.prober.views) == {"b"}


def test_who_has_just_answered_is_left_alone_for_the_interval(asked: Asked) -> None:
    asked.until_told(1)
    asked.asks(1)
    started, first = time.monotonic(), asked.prober.asked
    asked.asks(20)
    # A quarter less: those due soon are asked together.
    assert time.monotonic() - started >= (asked.prober.asked - first - 1) * INTERVAL_SECONDS * 3 / 4


def test_a_large_job_is_asked_no_more_often_than_a_hundred_a_second(workers: Workers) -> None:
    asked = Asked(workers, **{str(i): f"127.0.4.{i + 1}" for i in range(200)})
    while asked.prober.settled < 200:
        asked.prober.turn()
    assert asked.prober._pace() == 2.0
    asked.prober.close()


@given(st.lists(st.sampled_from(["answer", "miss", "other"]), max_size=30))
def test_out_means_three_misses_in_a_row_while_another_answered(events: list[str]) -> None:
    tally, last_answer, row, other_since = Tally(), -1.0, 0, False
    for now, event in enumerate(events):
        if event == "miss":
            tally, row = tally.missed(float(now)), row + 1
            other_since = other_since and row > 1
        elif event == "answer":
            tally, row, last_answer = tally.answered(WorkerView()), 0, float(now)
        else:
            last_answer, other_since = float(now), row > 0
        assert tally.is_lost(last_answer) is (row >= MISSES and other_since)


def test_a_request_for_a_checkpoint_reaches_who_can_be_reached(workers: Workers) -> None:
    workers.silent.add(B)
    assert ask_for_checkpoint([A, B, "127.0.3.3"], "the job\nfalls short", port=workers.port, timeout_seconds=3.0) == 2
    assert ask_for_checkpoint([], "nobody", port=workers.port) == 0
    until(lambda: len(workers.heard) == 2)
    assert set(workers.heard) == {
        (A, "checkpoint the job falls short"),
        ("127.0.3.3", "checkpoint the job falls short"),
    }
