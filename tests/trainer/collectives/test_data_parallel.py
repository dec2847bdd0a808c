"""DistributedDataParallel in a world of one: what of an object is made anew in each world, and what stays."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from torch import distributed, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision
from torch.utils.checkpoint import checkpoint

from hvd_elastic.trainer.collectives.engine import EngineError
from hvd_elastic.trainer.collectives.torch_engine.data_parallel import DataParallelModels
from hvd_elastic.trainer.collectives.torch_engine.loss_module import averaging
from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld
from hvd_elastic.trainer.elastic.mistakes.explained_errors import find


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataParallelModels]:
    """Those of a process whose world has formed."""
    for name in ("__init__", "register_comm_hook"):
        monkeypatch.setattr(DistributedDataParallel, name, getattr(DistributedDataParallel, name))
    world, models = TorchTrainingWorld(), DataParallelModels()
    with mock.patch.dict(os.environ):
        world.init()
        models.install()
        yield models
        world.shutdown()


def next_world(models: DataParallelModels) -> None:
    world = TorchTrainingWorld()
    world.shutdown()
    world.init()
    models.enter_world()


def step(model: DistributedDataParallel) -> torch.Tensor:
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    gradient = next(model.parameters()).grad
    assert gradient is not None
    return gradient.clone()


def test_an_object_goes_on_in_the_next_world(models: DataParallelModels) -> None:
    model = DistributedDataParallel(nn.Linear(4, 3))
    before, reducer = step(model), model.reducer
    next_world(models)
    assert model.reducer is not reducer
    assert model.process_group is distributed.group.WORLD
    assert torch.equal(step(model), before)
    assert torch.equal(step(model), before)


def test_a_comm_hook_goes_on_in_the_next_world(models: DataParallelModels) -> None:
    called = []

    def hook(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        called.append(state)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model = DistributedDataParallel(nn.Linear(4, 3))
    model.register_comm_hook("mine", hook)
    step(model)
    next_world(models)
    called.clear()
    step(model)
    assert called == ["mine"]


def test_the_last_pass_of_a_step_averages_what_came_before(models: DataParallelModels) -> None:
    model, is_last = DistributedDataParallel(nn.Linear(4, 3)), True
    with model.no_sync():
        step(model)
        assert not model.require_backward_grad_sync, "the script's own accumulation"
    models.split_steps(lambda: is_last)
    for is_last in (False, False, True):
        step(model)
        assert model.require_backward_grad_sync is is_last
    models.split_steps(None)
    step(model)
    assert model.require_backward_grad_sync


def test_a_group_of_the_scripts_own_is_refused(models: DataParallelModels) -> None:
    with pytest.raises(EngineError, match="a group of the script's own ends with its world"):
        DistributedDataParallel(nn.Linear(4, 3), process_group=distributed.group.WORLD)


@pytest.mark.usefixtures("models")
def test_a_gradient_that_is_complete_twice_is_explained() -> None:
    """As in a loss of the Trainer: parameters that checkpointing hides count as unused at first."""
    model = nn.Linear(2, 2)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = checkpoint(model, batch, use_reentrant=batch.requires_grad)
        return value.sum()

    averaged = averaging(loss, model)
    averaged(model, torch.ones(1, 2)).backward()  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError) as caught:
        averaged(model, torch.ones(1, 2, requires_grad=True)).backward()  # type: ignore[no-untyped-call]
    words = find(caught.value)
    assert words is not None
    assert "DistributedDataParallel averages it when it is complete" in words
    assert "use_reentrant=False" in words


def test_mixed_precision_of_ddp_is_refused(models: DataParallelModels) -> None:
    with pytest.raises(EngineError, match=r"within torch\.autocast"):
        DistributedDataParallel(nn.Linear(4, 3), mixed_precision=_MixedPrecision(param_dtype=torch.bfloat16))


def test_a_comm_hook_over_the_world_goes_on_over_the_next(models: DataParallelModels) -> None:
    model = DistributedDataParallel(nn.Linear(4, 3))
    model.register_comm_hook(distributed.group.WORLD, default_hooks.allreduce_hook)
    before = step(model)
    next_world(models)
    assert torch.equal(step(model), before)


def test_a_comm_hook_that_cannot_go_on_is_refused(models: DataParallelModels) -> None:
    model = DistributedDataParallel(nn.Linear(4, 3))
    with pytest.raises(EngineError, match="a group of the script's own ends with its world"):
        model.register_comm_hook(distributed.new_group([0]), default_hooks.allreduce_hook)
    with pytest.raises(EngineError, match=r"PowerSGDState.*a newcomer would send other things"):
        model.register_comm_hook(powerSGD_hook.PowerSGDState(None), powerSGD_hook.powerSGD_hook)


def test_a_static_graph_is_looked_at_again_in_each_world(models: DataParallelModels) -> None:
    """Its reducer averages at the end of the first pass, as DistributedDataParallel asks it to there alone."""
    model = DistributedDataParallel(nn.Linear(4, 3), static_graph=True)
    calls: list[int] = []
    model.register_comm_hook(calls, _note)
    step(model)
    next_world(models)
    calls.clear()
    step(model)
    assert len(calls) == 1


def test_a_static_graph_and_micro_batches_are_refused(models: DataParallelModels) -> None:
    models.split_steps(lambda: False)
    with pytest.raises(EngineError, match="Leave out one of the two"):
        step(DistributedDataParallel(nn.Linear(4, 3), static_graph=True))


def _note(calls: list[int], bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    calls.append(bucket.index())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
