"""Ranks' words about their waits, put together: who waits for whom, from when to when."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.entries import Entry, RanksStalled, StallEnded, WorldChanged
from hvd_elastic.discovery.ledger.history.stall_history import FRESH_SECONDS, QUIET_SECONDS, ROUND_SECONDS, StallHistory
from hvd_elastic.discovery.ledger.rank_wait import RankWait, rank_waits, stall_words


def waits(rank: int, seconds: float = 42.0, *, size: int = 3, operation: str = "allreduce loss") -> RankWait:
    return RankWait(rank=rank, size=size, seconds=seconds, after=30.0, operation=operation, place="train.py:9 in train")


def computes(rank: int, seconds: float = 44.0, *, size: int = 3) -> RankWait:
    return RankWait(rank=rank, size=size, seconds=seconds, after=30.0, place="train.py:123 in evaluate")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param(
            [computes(2), waits(0), waits(1)],
            "ranks 0, 1 wait in allreduce loss at train.py:9 in train; rank 2 computes at train.py:123 in evaluate",
            id="one computes",
        ),
        pytest.param(
            [waits(0), waits(1, operation="broadcast w")],
            "rank 0 waits in allreduce loss at train.py:9 in train; rank 1 waits in broadcast w at train.py:9 in train"
            "; nothing is heard of rank 2",
            id="one says nothing",
        ),
        pytest.param(
            [computes(rank) for rank in range(3)], "ranks 0, 1, 2 compute at train.py:123 in evaluate", id="all"
        ),
        pytest.param(
            [waits(rank, size=10) for rank in range(10)],
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more wait in allreduce loss at train.py:9 in train",
            id="many",
        ),
        pytest.param(
            [waits(rank, size=6, operation=f"allreduce {rank}") for rank in range(6)],
            "; ".join(f"rank {rank} waits in allreduce {rank} at train.py:9 in train" for rank in range(4))
            + "; 2 more wait or compute elsewhere",
            id="each in another",
        ),
        pytest.param(
            [waits(0, size=999_999)],
            "rank 0 waits in allreduce loss at train.py:9 in train; nothing is heard of ranks 1, 2, 3, 4, 5, 6, 7, 8 "
            "and 999990 more",
            id="a size that nobody has",
        ),
        pytest.param(
            [waits(5, size=2), waits(0, size=2)],
            "ranks 0, 5 wait in allreduce loss at train.py:9 in train; nothing is heard of rank 1",
            id="a rank beyond its world",
        ),
        pytest.param([], "", id="nobody"),
    ],
)
def test_the_sentence(said: list[RankWait], words: str) -> None:
    assert stall_words(said) == words


def asked(
    history: StallHistory, words: Mapping[str, tuple[RankWait, ...]], now: float, stepped: float = 0.0
) -> list[Entry]:
    """Ask all of these workers, and take what they say."""
    for uid in history.next_to_ask(list(words), 8, stepped=stepped, now=now):
        history.take(uid, words[uid], now)
    return list(history.pass_time(41, now))


def test_a_stall_from_its_beginning_to_its_end() -> None:
    history = StallHistory()
    assert asked(history, {"a": (waits(0, 5.0, size=2),), "b": ()}, QUIET_SECONDS - 1) == []
    assert asked(history, {"a": (waits(0, 20.0, size=2),), "b": (computes(1, 21.0, size=2),)}, 25.0) == []
    words = "rank 0 waits in allreduce loss at train.py:9 in train; rank 1 computes at train.py:123 in evaluate"
    stalled = {"a": (waits(0, 31.0, size=2),), "b": (computes(1, 29.0, size=2),)}
    assert asked(history, stalled, 36.0) == [RanksStalled(unix=5.0, step=41, words=words)]
    assert (history.words, history.since) == (words, 5.0)
    assert asked(history, stalled, 40.0) == [], "it is told once"
    assert asked(history, stalled, 51.0, stepped=50.0) == [StallEnded(unix=51.0, seconds=46.0)]
    assert history.words == ""


def test_a_slow_loader_is_no_stall() -> None:
    history = StallHistory()
    assert asked(history, {"a": (computes(0, 40.0, size=2),), "b": (computes(1, 41.0, size=2),)}, 45.0) == []
    assert history.words == "ranks 0, 1 compute at train.py:123 in evaluate"


def test_it_waits_until_all_were_asked_but_not_for_ever() -> None:
    history, uids = StallHistory(), [str(number) for number in range(20)]
    for uid in history.next_to_ask(uids, 8, stepped=0.0, now=35.0):
        history.take(uid, (waits(int(uid), 31.0, size=20),), 35.0)
    assert list(history.pass_time(1, 35.0)) == []
    assert list(history.pass_time(1, 35.0 + ROUND_SECONDS)), "some workers do not answer"


def test_old_words_and_those_of_workers_that_left_do_not_count() -> None:
    history = StallHistory()
    assert asked(history, {"a": (waits(0, 31.0, size=1),)}, 40.0)
    assert history.next_to_ask(["b"], 8, stepped=0.0, now=41.0) == ["b"]
    assert [type(entry) for entry in history.pass_time(1, 41.0)] == [StallEnded]
    history = StallHistory()
    assert asked(history, {"a": (waits(0, 31.0, size=1),)}, 40.0)
    assert [type(entry) for entry in history.pass_time(1, 40.0 + FRESH_SECONDS)] == [StallEnded]


def test_a_later_sidecar_ends_what_an_earlier_one_has_told() -> None:
    told = RanksStalled(unix=5.0, words="rank 0 waits")
    assert list(StallHistory.resume([told]).pass_time(1, 25.0)) == [StallEnded(unix=25.0, seconds=20.0)]
    assert list(StallHistory.resume([told, StallEnded(unix=9.0, seconds=4.0)]).pass_time(1, 25.0)) == []
    assert list(StallHistory.resume([told, WorldChanged(unix=9.0, workers=())]).pass_time(1, 25.0)) == []


@given(st.integers(1, 40), st.integers(1, 9))
def test_all_are_asked_in_turns(workers: int, most: int) -> None:
    history, uids = StallHistory(), [str(number) for number in range(workers)]
    chosen = [uid for _ in range(-(-workers // most)) for uid in history.next_to_ask(uids, most, stepped=None, now=0.0)]
    assert set(chosen) == set(uids)
    assert len(chosen) < workers + most


KEYS = st.sampled_from(["rank", "size", "seconds", "after", "operation", "place", "x"])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))


@given(JSON)
def test_whatever_a_script_writes_costs_only_itself(document: object) -> None:
    for said in rank_waits(document):
        assert stall_words([said])


def test_a_word_is_read_and_made_safe_for_a_terminal() -> None:
    good = {"rank": 1, "size": 2, "seconds": 31, "after": 30, "operation": "allreduce \x1b[31mw", "place": "x" * 999}
    bad: tuple[object, ...] = (
        {**good, "rank": True},
        {**good, "rank": -1},
        {**good, "seconds": "31"},
        {**good, "seconds": 1e308},
        {**good, "seconds": -1.0},
        {**good, "after": -1.0},
        {**good, "place": 7},
        [],
        3,
    )
    (word,) = rank_waits([good, *bad])
    assert (word.rank, word.operation, len(word.place), word.is_long) == (1, "allreduce ?[31mw", 160, True)
    for value in (None, "", {}, good):
        assert rank_waits(value) == ()
