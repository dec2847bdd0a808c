"""When it is certain that ranks wait for each other for ever, and when not."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.elastic.stalls import deadlock_search
from hvd_elastic.trainer.elastic.stalls.deadlock_search import DeadlockSearch, StandingRank, find_apart
from hvd_elastic.trainer.elastic.world import rendezvous_client
from tests.trainer.elastic.fake_launcher import LauncherStore


def stands(operation: str, *begun: str, spell: int = 1, line: int = 1) -> StandingRank:
    standing = StandingRank.of(spell, operation, f"train.py:{line} in train", begun)
    assert standing is not None
    return standing


COMMIT, LOSS = stands("allreduce hvd_elastic.agreement", line=8), stands("allreduce loss", line=5)


def test_ranks_in_unlike_operations_are_found(store: LauncherStore) -> None:
    searches = [DeadlockSearch() for _ in range(3)]
    turns = [rank for _ in range(5) for rank in (1, 2, 0)]
    found = [searches[rank].look(rank, 3, LOSS if rank == 2 else COMMIT) for rank in turns]
    words = (
        "rank 0 waits in allreduce hvd_elastic.agreement at train.py:8 in train, and rank 2 in allreduce loss at "
        "train.py:5 in train"
    )
    assert found == [None] * 8 + [words, None, None, words, None, None, words]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda _: None, id="silent"),
        pytest.param(lambda _: (1, LOSS), id="stopped"),
        pytest.param(lambda turn: (turn, stands("allreduce loss", spell=turn)), id="gets on"),
        pytest.param(lambda turn: (turn, stands("allreduce loss", f"allreduce {turn}")), id="begins more"),
        pytest.param(lambda turn: (turn, COMMIT), id="in the same"),
        pytest.param(lambda turn: (turn, stands("allreduce loss", COMMIT.operation)), id="has begun the other"),
    ],
)
def test_less_than_certain_is_left_alone(
    store: LauncherStore, other: Callable[[int], tuple[int, StandingRank] | None]
) -> None:
    search = DeadlockSearch()
    for turn in range(1, 20):
        said = other(turn)
        if said is not None:
            store.publish("", "1", deadlock_search._word(*said))
        assert search.look(0, 2, COMMIT) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '[1, 1, "a", "b", "xyz"]', '["1", 1, "a", "b", ""]', "[" * 99_999])
def test_a_strangers_word_is_no_rank(store: LauncherStore, text: str) -> None:
    search = DeadlockSearch()
    for _ in range(9):
        store.publish("", "1", text)
        assert search.look(0, 2, COMMIT) is None


def test_where_some_ranks_have_an_operation_of_their_own_nothing_is_certain() -> None:
    assert StandingRank.of(1, "allreduce of process set 2: w", "", ()) is None
    assert StandingRank.of(1, "allreduce w", "", ["barrier of process set 1:"]) is None
    assert StandingRank.of(1, "join", "", ()) is None
    assert StandingRank.of(1, "allreduce w", "", [str(each) for each in range(9000)]) is None


def test_without_a_launcher_nobody_is_asked(store: LauncherStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_client, "launched", lambda: False)
    assert DeadlockSearch().look(0, 2, COMMIT) is None
    assert not store.said


def test_a_large_world_speaks_more_rarely(store: LauncherStore) -> None:
    search = DeadlockSearch()
    spoke = []
    for _ in range(9):
        store.said.clear()
        search.look(5, 256, COMMIT)
        spoke.append(bool(store.said))
    assert spoke == [False, False, True] * 3


OPERATIONS = "abcd"


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.sets(st.sampled_from(OPERATIONS))), min_size=1, max_size=5))
def test_nobody_gets_on_exactly_if_it_is_called_a_deadlock(world: list[tuple[str, set[str]]]) -> None:
    """An operation is done once all ranks have begun it."""
    done = set.intersection(*({operation, *begun} for operation, begun in world))
    is_deadlock = all(operation not in done for operation, _ in world)
    apart = find_apart([stands(operation, *begun) for operation, begun in world])
    assert (apart is not None) == is_deadlock
    if apart is not None:
        assert world[apart][0] != world[0][0]
