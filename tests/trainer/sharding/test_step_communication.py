"""What the ranks of a sharded optimizer send each other in a step, over threads."""

from collections.abc import Iterator

import pytest
import torch

from hvd_elastic.trainer.sharding import parameter_buckets, step_communication
from hvd_elastic.trainer.sharding.parameter_buckets import ParameterBuckets
from hvd_elastic.trainer.sharding.shares import WHOLE, Share
from hvd_elastic.trainer.sharding.step_communication import StepCommunication
from testbed.thread_world import ThreadTrainingWorld, in_each_rank

SHAPES = ((7, 5), (3,), (1,), (40,))


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter_buckets, "BUCKET_ELEMENTS", 10)


@pytest.fixture(params=[False, True], ids=["allreduce", "reducescatter"])
def scatters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    monkeypatch.setattr(step_communication, "scatters", lambda *_: request.param)
    return request.param  # type: ignore[no-any-return]


def parameters_of(rank: int) -> ParameterBuckets:
    """With gradients that are multiples of 1/8, so that their sums are exact in any order."""
    weights = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    for number, weight in enumerate(weights):
        if (number + rank) % 3:  # else it has none, which counts as zeros
            steps = torch.arange(weight.numel(), dtype=torch.float32).view_as(weight)
            weight.grad = (steps % 5 + rank) / 8
    return ParameterBuckets([{"params": weights}])


def mean_of(size: int) -> list[torch.Tensor]:
    """By bucket, the mean of the gradients of all ranks."""
    all_ranks = [parameters_of(rank) for rank in range(size)]
    return [
        torch.stack([each.gradients(bucket, WHOLE) for each in all_ranks]).mean(dim=0)
        for bucket in all_ranks[0].buckets
    ]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_gradients_are_averaged_in_place(size: int) -> None:
    def work(world: ThreadTrainingWorld) -> list[torch.Tensor]:
        parameters = parameters_of(world.rank())
        StepCommunication(parameters, world).average_gradients()
        return [parameters.gradients(bucket, WHOLE) for bucket in parameters.buckets]

    for averaged in in_each_rank(size, work):
        assert all(map(torch.equal, averaged, mean_of(size)))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_each_rank_has_its_share_of_the_average(size: int, scatters: bool) -> None:
    def work(world: ThreadTrainingWorld) -> tuple[list[torch.Tensor], list[str]]:
        share = Share(rank=world.rank(), size=world.size())
        return StepCommunication(parameters_of(world.rank()), world).averaged_share(share), world.said

    expected = mean_of(size)
    for rank, (own, said) in enumerate(in_each_rank(size, work)):
        ranges = [slice(*Share(rank=rank, size=size).range(len(each))) for each in expected]
        assert all(torch.equal(mine, each[part]) for mine, each, part in zip(own, expected, ranges, strict=True))
        kind = "reducescatter" if scatters else "allreduce"
        assert said == [f"{kind} hvd_elastic.gradient.4.79.{index}" for index in range(len(expected))]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_ranks_have_all_weights_of_the_step(size: int) -> None:
    def work(world: ThreadTrainingWorld) -> list[torch.Tensor]:
        parameters = parameters_of(0)
        share = Share(rank=world.rank(), size=world.size())
        ends = [share.range(length) for length in parameters.lengths]
        shards = [torch.arange(start, stop, dtype=torch.float32) for start, stop in ends]
        StepCommunication(parameters, world).gather_weights(shards)
        return parameters.weights

    counted = [torch.arange(length) for length in parameters_of(0).lengths]
    for weights in in_each_rank(size, work):
        assert torch.equal(torch.cat([weight.detach().flatten() for weight in weights]), torch.cat(counted).float())
