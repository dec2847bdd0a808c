from types import SimpleNamespace
from typing import Any

import datasets
import horovod.torch as hvd
import pytest
import torch
from horovod.torch.elastic.sampler import ElasticSampler
from torch.utils.data import DataLoader

from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.mistakes import script_checks


@pytest.fixture(autouse=True)
def _world() -> None:
    horovod_patches.init()


def wrapped(model: torch.nn.Module) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    return optimizer


def found(**values: Any) -> list[str]:
    return script_checks.find(SimpleNamespace(**values))


def test_a_sound_script_has_none() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = wrapped(model)
    other = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    sampler = ElasticSampler(range(10))
    assert found(model=model, optimizer=optimizer, sampler=sampler, epoch=0) == []
    assert other.param_groups


def test_an_optimizer_that_the_training_function_wraps() -> None:
    model = torch.nn.Linear(2, 1)
    state = SimpleNamespace(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), best=wrapped(model))
    before = script_checks.plain_optimizers(state)
    assert before == {"optimizer"}
    assert script_checks.find_wrapped_since(state, before) == []
    state.optimizer = hvd.DistributedOptimizer(state.optimizer, named_parameters=model.named_parameters())
    (mistake,) = script_checks.find_wrapped_since(state, before)
    assert "the training function wraps state.optimizer" in mistake


def test_what_is_garbage_is_no_mistake() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = wrapped(model)
    thrown_away: list[object] = [wrapped(model)]
    thrown_away.append(thrown_away)
    del thrown_away
    assert found(model=model, optimizer=optimizer) == []


def test_an_optimizer_that_would_stay_behind() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = wrapped(model)
    (mistake,) = found(model=model)
    assert "the optimizer SGD is not part of the state" in mistake
    assert optimizer.param_groups


def test_the_wrong_one_of_two_optimizers() -> None:
    model = torch.nn.Linear(2, 1)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    used = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    (mistake,) = found(model=model, optimizer=plain)
    assert "give that one to State(optimizer=...)" in mistake
    assert found(model=model, optimizer=used) == []


def test_a_sampler_that_would_disagree() -> None:
    sampler = ElasticSampler(range(10))
    (mistake,) = found(epoch=0)
    assert "ElasticSampler is not part of the state" in mistake
    assert len(sampler)


def test_the_position_of_one_worker_in_the_state() -> None:
    class Stateful(DataLoader[int]):
        def state_dict(self) -> dict[str, int]:
            return {}

    data: Any = [1, 2]
    assert found(loader=DataLoader(data)) == [], "it is a value like others"
    (mistake,) = found(loader=Stateful(data))
    assert "state.loader is of type Stateful" in mistake
    assert "state.batches(loader, ...)" in mistake
    rows = datasets.Dataset.from_dict({"a": [1]}).to_iterable_dataset()
    (mistake,) = found(rows=rows)
    assert "state.rows is of type IterableDataset" in mistake
