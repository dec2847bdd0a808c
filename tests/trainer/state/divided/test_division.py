"""Which divisions of a module over the ranks of a world can be made again in another one."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import TensorDataset

from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.fit.flat_arguments import take_options
from hvd_elastic.trainer.fit.trainer_checks import TrainerError, check_arguments
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.state.divided import division
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.state_objects import StateError
from tests.torch_division import needs_division

pytestmark = needs_division


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with mock.patch.object(division, "IS_TORCH", True):
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        yield
        distributed.destroy_process_group()


def next_world() -> None:
    distributed.destroy_process_group()
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)


def model_of() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


def test_what_can_be_divided_again_is_not_refused() -> None:
    plain, divided = model_of(), model_of()
    fully_shard(divided[0])
    fully_shard(divided, mesh=init_device_mesh("cpu", (1,)), reshard_after_forward=False)
    assert not [*division.problems({"plain": plain, "divided": divided, "rate": 0.1, "none": None})]
    assert division.divided_object(plain) is division.divided_object(0.1) is None


class Gathering:
    """In place of torch's own all-gather."""

    def allocate(self, *_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError

    def __call__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError


def of_two_dimensions(model: nn.Sequential) -> None:
    fully_shard(model, mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("copies", "parts")))


def offloaded(model: nn.Sequential) -> None:
    fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory=False))


def by_columns(model: nn.Sequential) -> None:
    fully_shard(model[0], shard_placement_fn=lambda weight: Shard(weight.dim() - 1))


def over_a_tensor_parallel_one(model: nn.Sequential) -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=mesh["data"])


def with_its_own_gathering(model: nn.Sequential) -> None:
    fully_shard(model)
    assert isinstance(model, FSDPModule)
    model.set_custom_all_gather(Gathering())  # type: ignore[arg-type]


def of_the_first_kind(model: nn.Sequential) -> None:
    model[0] = FullyShardedDataParallel(model[0], device_id=torch.device("cpu"))


@pytest.mark.parametrize(
    ("divide", "words"),
    [
        (of_two_dimensions, "a mesh of several dimensions, or of some ranks, ends with its world"),
        (offloaded, "offload_policy"),
        (by_columns, "only the first dimension is divided"),
        (over_a_tensor_parallel_one, "tensor parallelism"),
        (with_its_own_gathering, "a communication of the script's own"),
        (of_the_first_kind, "FullyShardedDataParallel cannot be divided again"),
    ],
)
def test_what_no_other_world_can_have_is_refused(divide: Callable[[nn.Sequential], None], words: str) -> None:
    model = model_of()
    divide(model)
    (problem, *_) = division.problems({"model": model})
    assert problem.startswith("state.model: ")
    assert words in problem


def test_tensor_parallelism_alone_is_refused() -> None:
    model = model_of()
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel()})
    assert "tensor parallelism" in " ".join(division.problems({"model": model}))


def test_an_earlier_torch_is_refused() -> None:
    model = model_of()
    fully_shard(model)
    with mock.patch.object(module_division, "_OF_STATE", ("_of_a_later_one",)):
        (problem,) = division.problems({"model": model})
    assert "it has no _of_a_later_one, as that of torch 2.15" in problem


def test_another_engine_refuses_it() -> None:
    model = model_of()
    fully_shard(model)
    with mock.patch.object(division, "IS_TORCH", False):
        assert "engine: torch" in " ".join(division.problems({"model": model}))


def test_what_the_script_has_set_goes_on_in_the_next_world() -> None:
    model = model_of()
    fully_shard([model[0], model[2]], mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    fully_shard(model, reshard_after_forward=False)
    assert isinstance(model, FSDPModule)
    assert isinstance(model[0], FSDPModule)
    model.set_reshard_after_backward(False)
    model[0].set_gradient_divide_factor(8.0)
    model.set_modules_to_forward_prefetch([model[0]])
    model[0].weight.requires_grad_(False)
    before = [*model.parameters()]
    model(torch.ones(3, 4)).float().sum().backward()
    next_world()
    module_division.divide_anew(model)
    assert all(one is other for one, other in zip(before, model.parameters(), strict=True))
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(0.5)
    output = model(torch.ones(3, 4))
    assert output.dtype is torch.bfloat16
    output.float().sum().backward()
    assert not isinstance(model[2].bias, DTensor), "gathered from here on, as the script has asked"
    frozen, *_, bias = before
    assert frozen.grad is None
    assert isinstance(bias.grad, DTensor)
    assert bias.grad.full_tensor().tolist() == [3 / 8] * 2


def test_a_module_is_what_it_was_before_and_after() -> None:
    """No hook is called twice, and its class is what one call of `fully_shard` makes."""
    model = model_of()
    fully_shard(model)
    kind, hooks = type(model), (len(model._forward_hooks), len(model._forward_pre_hooks))
    for _ in range(3):
        next_world()
        module_division.divide_anew(model)
    assert (type(model), (len(model._forward_hooks), len(model._forward_pre_hooks))) == (kind, hooks)
    assert len(model[0]._load_state_dict_post_hooks) == 2


def test_an_optimizer_without_its_module_is_refused() -> None:
    model = model_of()
    fully_shard(model)
    optimizer = division.divided_object(torch.optim.AdamW(model.parameters()))
    assert optimizer is not None
    with pytest.raises(ShardingError, match="a module that is not in the State"):
        division.divide_anew([optimizer])


def test_a_state_that_is_not_elementwise_is_refused() -> None:
    model = model_of()
    fully_shard(model)
    kept = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = division.divided_object(kept)
    assert optimizer is not None
    kept.state[next(model.parameters())]["rows"] = torch.zeros(4)
    with pytest.raises(ShardingError, match="the optimizer keeps rows"):
        optimizer.state_dict()


def test_an_optimizer_is_not_divided_twice() -> None:
    model = model_of()
    fully_shard(model)
    with pytest.raises(ShardingError, match="with them the state of any optimizer"):
        ShardedOptimizer(model.parameters(), torch.optim.AdamW)


def test_passes_that_may_be_unlike_are_refused() -> None:
    """A worker that makes one more would wait for all others, which make none."""
    model = model_of()
    fully_shard(model)
    state = State(model=model, optimizer=torch.optim.AdamW(model.parameters()))
    dataset = TensorDataset(torch.ones(6, 4))
    with pytest.raises(StateError, match="a micro_batch_size of 2 at least"):
        next(iter(state.batches(dataset, batch_size=3, micro_batch_size=1)))
    with pytest.raises(StateError, match="leave out batches_per_step"):
        next(iter(state.batches(dataset, batch_sampler=[[0], [1], [2]], batches_per_step=2)))
    assert len(next(iter(state.batches(dataset, batch_size=3, micro_batch_size=2)))[0]) == 2


def test_the_trainer_says_what_to_do_instead() -> None:
    model = model_of()
    fully_shard(model)
    options = take_options(dict.fromkeys(("evaluation", "computation", "checkpointing", "reporting")), {})
    with pytest.raises(TrainerError, match="write the loop yourself"):
        check_arguments(
            options, model, torch.optim.SGD(model.parameters()), epochs=1, max_steps=None, schedule_per="epoch"
        )
