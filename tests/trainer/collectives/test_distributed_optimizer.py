"""What is read of Horovod's optimizers is there in the installed Horovod, and other optimizers are left alone."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch

from hvd_elastic.trainer.collectives import distributed_optimizer
from hvd_elastic.trainer.elastic import horovod_patches


@pytest.fixture(autouse=True)
def _world() -> None:
    horovod_patches.init()


def optimizer_of() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def wrapped(**options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer_of(), **options)


def test_a_plain_optimizer_is_left_alone() -> None:
    plain = optimizer_of()
    before = {name: value for name, value in vars(plain).items() if name != "state"}
    assert not distributed_optimizer.is_wrapped(plain)
    assert not distributed_optimizer.is_wrapped(None)
    assert not distributed_optimizer.holds_gradients(plain)
    distributed_optimizer.set_backward_passes(plain, 3)
    distributed_optimizer.forget_averaging(plain)
    assert {name: value for name, value in vars(plain).items() if name != "state"} == before


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"op": hvd.Adasum}], ids=["average", "groups", "adasum"])
def test_what_horovod_makes_is_known(options: dict[str, Any]) -> None:
    assert distributed_optimizer.is_wrapped(wrapped(**options))


@pytest.mark.parametrize("options", [{}, {"groups": 1}], ids=["average", "groups"])
def test_an_optimizer_waits_for_the_first_backward_pass_of_a_step_again(options: dict[str, Any]) -> None:
    optimizer = wrapped(**options)
    distributed_optimizer.set_backward_passes(optimizer, 3)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    optimizer._handles[weights[0]] = (None, None)
    assert distributed_optimizer.holds_gradients(optimizer)
    optimizer._allreduce_delay = dict.fromkeys(weights, 1)
    distributed_optimizer.forget_averaging(optimizer)
    assert not distributed_optimizer.holds_gradients(optimizer)
    assert set(optimizer._allreduce_delay.values()) == {3}
    assert not any(optimizer._group_counts.values())
