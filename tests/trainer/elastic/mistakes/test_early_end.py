"""How a rank that waits in training learns of one that has left it."""

import pytest

from hvd_elastic.trainer.elastic.mistakes.early_end import EarlyEnd
from hvd_elastic.trainer.elastic.world import rendezvous_client


class Store:
    """The launcher's, for one key."""

    def __init__(self) -> None:
        self.value: str | None = None

    def publish(self, _scope: str, _key: str, text: str) -> None:
        self.value = text

    def published(self, _scope: str, _key: str) -> str | None:
        return self.value


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(rendezvous_client, "launched", lambda: True)
    monkeypatch.setattr(rendezvous_client, "publish", store.publish)
    monkeypatch.setattr(rendezvous_client, "published", store.published)
    return store


def test_a_value_that_changes_comes_from_a_rank_that_has_left(store: Store) -> None:
    waits = EarlyEnd()
    store.value = "2 40 7"
    assert waits.find(1) is None
    store.value = "2 40 8"
    assert waits.find(1) == "rank 2 has left its training function after step 40"


def test_what_a_former_world_left_behind_says_nothing(store: Store) -> None:
    waits = EarlyEnd()
    store.value = "2 40 7"
    assert [waits.find(1) for _ in range(5)] == [None] * 5


def test_what_was_said_before_this_wait_does_not_count(store: Store) -> None:
    waits = EarlyEnd()
    store.value = "2 40 7"
    assert waits.find(1) is None
    store.value = "2 40 8"
    assert waits.find(2) is None, "it goes on with a wait of another number"


@pytest.mark.parametrize("value", [None, "", "2 40", "a b c", "2 40 8 9", "\ufffd"])
def test_a_strangers_word_is_no_rank(store: Store, value: str | None) -> None:
    waits = EarlyEnd()
    store.value = "2 40 7"
    waits.find(1)
    store.value = value
    assert waits.find(1) is None


def test_who_has_left_says_so_as_long_as_it_waits(store: Store) -> None:
    with EarlyEnd().ended(2, 40):
        while store.value is None:
            pass
        assert store.value.startswith("2 40 ")


def test_without_a_launcher_nobody_is_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_client, "launched", lambda: False)
    with EarlyEnd().ended(2, 40):
        assert EarlyEnd().find(1) is None
    assert store.value is None
