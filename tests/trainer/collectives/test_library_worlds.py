"""What Accelerate and Lightning keep of a world, in a process whose world has become another one."""

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader

from hvd_elastic.trainer.collectives import library_worlds
from hvd_elastic.trainer.collectives.library_worlds import prepared_loader
from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld
from hvd_elastic.trainer.state.elastic_state import State

THIRD_OF_FOUR = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}


def loader_of(length: int) -> DataLoader[Any]:
    data: Any = torch.arange(length)
    return DataLoader(data, batch_size=2)


@pytest.fixture
def world() -> Iterator[None]:
    """A world of one, which is torch's."""
    world = TorchTrainingWorld()
    with mock.patch.dict(os.environ):
        world.init()
        yield
        world.shutdown()


@pytest.fixture
def accelerate(world: None) -> Iterator[Any]:
    module = pytest.importorskip("accelerate")
    library_worlds.enter_world({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    yield module
    module.state.AcceleratorState._reset_state(reset_partial_state=True)
    module.state.GradientState._reset_state()


@pytest.fixture
def fabric(world: None) -> Any:
    module = pytest.importorskip("lightning_fabric")
    library_worlds.enter_world({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    return module.Fabric(accelerator="cpu", strategy="ddp")


def test_accelerates_numbers_and_loaders_are_those_of_the_next_world(accelerate: Any) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    library_worlds.enter_world({**THIRD_OF_FOUR, "WORLD_SIZE": "2", "RANK": "1"})
    loader = accelerator.prepare(loader_of(16))
    assert len(loader) == 4
    library_worlds.enter_world(THIRD_OF_FOUR)
    assert (accelerator.num_processes, accelerator.process_index, accelerator.is_main_process) == (4, 2, False)
    assert list(loader.batch_sampler) == [[4, 5], [12, 13]]


def test_accelerate_averages_what_a_gpu_prepares_in_a_world_of_one(accelerate: Any) -> None:
    """Or a model would go on alone when others come."""
    accelerator = accelerate.Accelerator(cpu=True)
    for kind in (accelerate.PartialState, accelerate.state.AcceleratorState):
        kind._shared_state["distributed_type"] = accelerate.DistributedType.MULTI_GPU
    assert accelerator.multi_device


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({}, "NO", "Accelerator(cpu=True)"),
        ({"cpu": True}, "FSDP", "FSDP divides the model"),
        ({"cpu": True, "gradient_accumulation_steps": 2}, "MULTI_CPU", "micro_batch_size"),
        ({"cpu": True}, "MULTI_CPU", ""),
    ],
)
def test_what_cannot_follow_is_said(accelerate: Any, arguments: dict[str, Any], kind: str, words: str) -> None:
    accelerate.Accelerator(**arguments)
    accelerate.PartialState._shared_state["distributed_type"] = accelerate.DistributedType(kind)
    found = list(library_worlds.problems([], averages=False))
    assert [words in each for each in found] == ([True] if words else [])


@pytest.mark.parametrize(("splits", "sizes"), [(False, [2, 2, 1]), (True, [2, 2, 1])])
def test_a_prepared_loader_gives_batches_what_the_scripts_own_says(
    accelerate: Any, splits: bool, sizes: list[int]
) -> None:
    accelerator = accelerate.Accelerator(
        cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(split_batches=splits)
    )
    own = loader_of(5)
    prepared = accelerator.prepare(own)
    found = prepared_loader(prepared)
    assert found is not None
    assert (found.loader, found.splits_batches) == (own, splits)
    assert found.move is not None
    batches = list(State().batches(prepared))
    assert [len(batch) for batch in batches] == sizes
    assert torch.cat(batches).tolist() == list(range(5))


def test_fabrics_samplers_and_prints_follow(fabric: Any) -> None:
    rank_zero_only = pytest.importorskip("lightning_fabric.utilities.rank_zero").rank_zero_only
    os.environ.update(THIRD_OF_FOUR)
    library_worlds.enter_world(THIRD_OF_FOUR)
    assert rank_zero_only.rank == 2
    fabric.launch()  # which would compare one device on one node with the size
    own = loader_of(8)
    prepared = fabric.setup_dataloaders(own)
    assert torch.cat(list(prepared)).tolist() == [2, 6]
    found = prepared_loader(prepared)
    assert found is not None
    assert found.loader is own


def test_an_optimizer_that_divides_its_state_over_one_world_is_refused(world: None) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    weights = torch.nn.Linear(2, 1).parameters()
    optimizer = ZeroRedundancyOptimizer(weights, optimizer_class=torch.optim.SGD, lr=0.1)
    (sentence,) = library_worlds.problems([optimizer], averages=False)
    assert "elastic.ShardedOptimizer" in sentence


def test_a_loader_that_nobody_prepared_is_the_scripts_own() -> None:
    assert prepared_loader(loader_of(3)) is None
    assert prepared_loader(range(3)) is None
