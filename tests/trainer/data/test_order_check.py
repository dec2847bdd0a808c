"""What the workers tell each other of an order, and what all of them conclude."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.trainer.data.batch_policy import BatchError
from hvd_elastic.trainer.data.order_check import check_order
from hvd_elastic.trainer.data.progress import Cursor
from testbed.thread_world import ThreadTrainingWorld, in_each_rank
from tests.properties import examples


@dataclass(frozen=True)
class Order:
    """An order of so many samples; the same key is the same order."""

    key: int
    count: int = 10

    def digest(self, count: int) -> int:
        return self.key * 100 + count + 1


def outcome(world: ThreadTrainingWorld, order: Order | None, cursor: Cursor) -> str | None:
    """What a worker raises; None if it goes on."""
    try:
        check_order(order, cursor, name="train", what="the sampler", way_out="seed it", world=world)
    except BatchError as error:
        return str(error)
    return None


@settings(max_examples=examples(60))
@given(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.booleans())
def test_all_workers_go_on_or_none_does(keys: list[int], is_begun: bool) -> None:
    """The epoch was begun with order 0, if it was begun."""
    cursors = [Cursor() for _ in keys]
    if is_begun:
        for cursor in cursors:
            cursor.position, cursor.order_count, cursor.order_digest = 4, 10, Order(0).digest(10)
    found = in_each_rank(len(keys), lambda world: outcome(world, Order(keys[world.rank()]), cursors[world.rank()]))
    assert len(set(found)) == 1
    if len(set(keys)) > 1:
        assert found[0] == (
            f"batches('train'): the sampler gives another order on worker {keys.index(1 - keys[0])} than on worker 0: "
            "seed it"
        )
    elif is_begun and keys[0]:
        assert found[0] is not None
        assert "another order than the one with which this epoch was begun, of which 4 samples were taken" in found[0]
    else:
        assert found[0] is None
        assert {(each.order_count, each.order_digest) for each in cursors} == {(10, Order(keys[0]).digest(10))}


@pytest.mark.parametrize(
    ("order", "size", "said"),
    [
        (None, 3, []),
        (Order(0), 1, []),
        (Order(0), 3, ["allgather hvd_elastic.order.train"]),
    ],
)
def test_only_an_order_that_is_drawn_is_compared(order: Order | None, size: int, said: list[str]) -> None:
    def work(world: ThreadTrainingWorld) -> list[str]:
        assert outcome(world, order, Cursor()) is None
        return world.said

    assert in_each_rank(size, work) == [said] * size
