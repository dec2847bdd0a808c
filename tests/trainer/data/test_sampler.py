from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.data import sampler
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.loaders.loader import stream_micro_batches
from hvd_elastic.trainer.data.sampler import EpochPlan, MicroBatch, SampleOrder


@st.composite
def policies(draw: st.DrawFn) -> BatchPolicy:
    number = draw(st.integers(1, 12))
    micro = draw(st.none() | st.integers(1, 5))
    if draw(st.booleans()):
        return BatchPolicy(global_size=number, micro=micro)
    return BatchPolicy(per_worker=number, micro=micro)


@dataclass
class World:
    """A world of `size` workers that takes `steps` steps, of which the last `lost` are not committed."""

    size: int
    steps: int
    lost: int


worlds = st.lists(
    st.builds(World, size=st.integers(1, 5), steps=st.integers(0, 6), lost=st.integers(0, 3)), min_size=1, max_size=6
)


def take(plan: EpochPlan, order: SampleOrder) -> list[tuple[list[int], MicroBatch]]:
    return list(zip(plan.indices(order), plan.micro_batches(), strict=True))


@given(
    length=st.integers(0, 60),
    policy=policies(),
    worlds=worlds,
    seed=st.integers(),
    stream=st.booleans(),
    data=st.data(),
)
def test_every_sample_once_over_any_worlds(
    length: int, policy: BatchPolicy, worlds: list[World], seed: int, stream: bool, data: st.DataObject
) -> None:
    """With resizes at any step and lost uncommitted steps, each sample of the epoch is committed exactly once."""
    order = SampleOrder(length, seed=seed, shuffle=not stream)
    position, seen = 0, Counter[int]()
    for index, world in enumerate([*worlds, World(size=data.draw(st.integers(1, 5)), steps=10**6, lost=0)]):
        per_rank = []
        for rank in range(world.size):
            plan = EpochPlan(length=length, position=position, policy=policy, rank=rank, size=world.size)
            taken = list(stream_micro_batches(plan, iter(range(position, length)))) if stream else take(plan, order)
            per_rank.append(_steps(taken))
        assert len({len(steps) for steps in per_rank}) == 1, "the ranks disagree on the number of steps"
        world_steps = list(zip(*per_rank, strict=True))[: world.steps]
        if index < len(worlds):
            world_steps = world_steps[: max(0, len(world_steps) - world.lost)]
        for step in world_steps:
            samples, position = _check_step(list(step), world.size, position)
            seen.update(samples)
    assert seen == Counter(range(length))


def _steps(taken: list[tuple[list[int], MicroBatch]]) -> list[list[tuple[list[int], MicroBatch]]]:
    steps: list[list[tuple[list[int], MicroBatch]]] = [[]]
    for samples, part in taken:
        assert len(samples) == part.count
        steps[-1].append((samples, part))
        if part.last:
            steps.append([])
    assert steps.pop() == []
    return steps


def _check_step(step: list[list[tuple[list[int], MicroBatch]]], size: int, position: int) -> tuple[list[int], int]:
    """Check one step of all ranks. Returns its samples without padding, and the position after it."""
    samples = [sample for rank in step for taken, part in rank if part.weight for sample in taken]
    padding = sum(not part.weight for rank in step for _, part in rank)
    ends = {part.position for rank in step for _, part in rank}
    assert ends == {position + len(samples)}
    assert {part.padding for rank in step for _, part in rank} == {padding}
    assert padding <= max(0, size - len(samples))
    total = sum(part.weight for rank in step for _, part in rank)
    assert total == pytest.approx(size), "Horovod's mean over the workers would not be the mean over the step"
    for rank in step:
        for taken, part in rank:
            assert part.weight in {0, len(taken) * size / len(samples)}
    return samples, position + len(samples)


@given(length=st.integers(1, 50), policy=policies(), size=st.integers(1, 5))
def test_drop_last_leaves_out_only_the_rest(length: int, policy: BatchPolicy, size: int) -> None:
    total = policy.total(size)
    order = SampleOrder(length)
    taken = [
        sample
        for rank in range(size)
        for samples, _ in take(
            EpochPlan(length=length, position=0, policy=policy, rank=rank, size=size, drop_last=True), order
        )
        for sample in samples
    ]
    real = Counter(taken)
    assert sum(real.values()) >= length // total * total
    assert set(real) == set(order.at(np.arange(length // total * total)).tolist())


@pytest.mark.parametrize("limit", [0, sampler.SORTED_LIMIT])
@given(length=st.integers(1, 300), seed=st.integers(), epoch=st.integers(0, 10**6))
def test_an_order_is_a_permutation(limit: int, length: int, seed: int, epoch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "SORTED_LIMIT", limit)
        order = SampleOrder(length, seed=seed, epoch=epoch)
        assert sorted(order.at(np.arange(length)).tolist()) == list(range(length))


def test_orders_do_not_change_between_versions() -> None:
    """A job restored from a checkpoint in mid-epoch continues with the same order, even after upgrades."""
    assert SampleOrder(10, seed=1, epoch=2).at(np.arange(10)).tolist() == SMALL
    assert SampleOrder(10_000_000, seed=1, epoch=2).at(np.arange(5)).tolist() == LARGE
    assert SampleOrder(10, seed=1, epoch=2, shuffle=False).at(np.arange(10)).tolist() == list(range(10))


SMALL = [7, 0, 3, 4, 2, 6, 8, 5, 9, 1]
LARGE = [723781, 7404092, 7132125, 5645937, 7039231]


@pytest.mark.parametrize("length", [100_000, sampler.SORTED_LIMIT + 12_345])
def test_orders_look_random(length: int) -> None:
    order = SampleOrder(length, seed=3)
    taken = order.at(np.arange(length))
    # Each hundredth of the order has about as many samples of each hundredth of the data (chi-square, 9801 degrees).
    table = np.histogram2d(np.arange(length), taken, bins=100)[0]
    expected = length / 10_000
    chi_square = float(((table - expected) ** 2 / expected).sum())
    assert abs(chi_square - 9801) < 6 * (2 * 9801) ** 0.5
    assert abs(np.corrcoef(taken[:-1], taken[1:])[0, 1]) < 5 / length**0.5
    other = SampleOrder(length, seed=3, epoch=1).at(np.arange(length))
    assert (taken == other).sum() < 20
