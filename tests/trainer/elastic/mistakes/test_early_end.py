"""How a rank that waits in training learns of one that has left it."""

import pytest

from hvd_elastic.trainer.elastic.mistakes.early_end import EarlyEnd
from hvd_elastic.trainer.elastic.world import rendezvous_client
from tests.trainer.elastic.fake_launcher import LauncherStore


def test_a_value_that_changes_comes_from_a_rank_that_has_left(store: LauncherStore) -> None:
    waits = EarlyEnd()
    store.said["any"] = "2 40 7"
    assert waits.find(1) is None
    store.said["any"] = "2 40 8"
    assert waits.find(1) == "rank 2 has left its training function after step 40"


def test_what_a_former_world_left_behind_says_nothing(store: LauncherStore) -> None:
    waits = EarlyEnd()
    store.said["any"] = "2 40 7"
    assert [waits.find(1) for _ in range(5)] == [None] * 5


def test_what_was_said_before_this_wait_does_not_count(store: LauncherStore) -> None:
    waits = EarlyEnd()
    store.said["any"] = "2 40 7"
    assert waits.find(1) is None
    store.said["any"] = "2 40 8"
    assert waits.find(2) is None, "it goes on with a wait of another number"


@pytest.mark.parametrize("value", [None, "", "2 40", "a b c", "2 40 8 9", "\ufffd"])
def test_a_strangers_word_is_no_rank(store: LauncherStore, value: str | None) -> None:
    waits = EarlyEnd()
    store.said["any"] = "2 40 7"
    waits.find(1)
    store.said["any"] = value
    assert waits.find(1) is None


def test_who_has_left_says_so_as_long_as_it_waits(store: LauncherStore) -> None:
    with EarlyEnd().ended(2, 40):
        while store.said.get("any") is None:
            pass
        assert str(store.said["any"]).startswith("2 40 ")


def test_without_a_launcher_nobody_is_asked(store: LauncherStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_client, "launched", lambda: False)
    with EarlyEnd().ended(2, 40):
        assert EarlyEnd().find(1) is None
    assert store.said.get("any") is None
