"""The batches of all workers together, each with its own `Batches`, over worlds of any size."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Sampler

from hvd_elastic.trainer.data.batch_policy import BatchError, BatchPolicy
from hvd_elastic.trainer.data.batches import Batches
from hvd_elastic.trainer.data.pass_options import PassOptions
from hvd_elastic.trainer.data.progress import EpochPosition
from hvd_elastic.trainer.data.randomness import Randomness
from testbed.thread_world import ThreadTrainingWorld, in_each_rank
from tests.properties import examples

LENGTH = 37


class Rotated(Sampler[int]):
    """The data set's order, begun elsewhere."""

    def __init__(self, *, by: int) -> None:
        self._by = by

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[int]:
        return ((each + self._by) % LENGTH for each in range(LENGTH))


def nothing() -> None:
    pass


def taken(
    world: ThreadTrainingWorld, committed: dict[str, Any], options: PassOptions, steps: int
) -> tuple[list[int], dict[str, Any]]:
    """What a worker takes in at most so many steps from a commit on, and what it then commits."""
    batches = Batches(world)
    batches.go_to(EpochPosition.from_state_dict(committed))
    samples: list[int] = []
    pairs = batches.batches(
        range(LENGTH), options, name="train", epoch=0, randomness=Randomness(enabled=False),
        on_step=nothing, on_end=nothing, commit=nothing,
    )  # fmt: skip
    for step, batch in enumerate(pairs, start=1):
        if batches.current.weight:  # else it is taken for the gradients alone
            samples += batch.tolist()
        committed = batches.account.position.state_dict()
        if step == steps:
            break
    return samples, committed


@settings(max_examples=examples(40))
@given(
    worlds=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=3),
    last=st.integers(1, 4),
    total=st.integers(1, 9),
    shuffle=st.booleans(),
)
def test_every_sample_once_over_worlds_of_any_size(
    worlds: list[tuple[int, int]], last: int, total: int, shuffle: bool
) -> None:
    """Each world but the last one takes some steps, and the next one goes on from what its workers commit."""
    options = PassOptions(policy=BatchPolicy(global_size=total), shuffle=shuffle, seed=3)
    committed = EpochPosition().state_dict()
    seen: list[int] = []
    for size, steps in [*worlds, (last, LENGTH + 1)]:
        work = partial(taken, committed=committed, options=options, steps=steps)
        found = in_each_rank(size, work)
        seen += [sample for samples, _ in found for sample in samples]
        committed = found[0][1]
        assert all(own == committed for _, own in found)
    assert sorted(seen) == list(range(LENGTH))


def test_workers_whose_samplers_draw_differently_take_nothing() -> None:
    def work(world: ThreadTrainingWorld) -> list[str]:
        options = PassOptions(policy=BatchPolicy(per_worker=4), sampler=Rotated(by=int(world.rank() > 1)))
        with pytest.raises(BatchError, match="another order on worker 2 than on worker 0"):
            taken(world, EpochPosition().state_dict(), options, 1)
        return world.said

    assert in_each_rank(3, work) == [["allgather hvd_elastic.order.train"]] * 3
