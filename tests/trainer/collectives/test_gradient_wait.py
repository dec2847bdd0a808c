"""Which of DistributedDataParallel's waits are counted, in a world of one.

Each look at the clock is a second later, so each wait is one second. Real waits are those of tests/local.
"""

import os
from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hvd_elastic.trainer.collectives.collective_calls import CollectiveCalls, WaitedTime
from hvd_elastic.trainer.collectives.torch_engine.gradient_wait import GradientWait
from hvd_elastic.trainer.collectives.torch_engine.torch_world import TorchTrainingWorld

X = torch.ones(2, 4)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"step": 3, "outputs": (self.left(x), [self.right(x)])}


class Detached(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return [None, {"logits": super().forward(x).detach()}, "words"]


class Waits:
    """Those of a process."""

    def __init__(self) -> None:
        self._waited, seconds = WaitedTime(), count()
        self._calls = CollectiveCalls(clock=lambda: float(next(seconds)), waited=self._waited)
        self._wait = GradientWait(self._calls)

    def model(self, module: nn.Module) -> DistributedDataParallel:
        model = DistributedDataParallel(module)
        self._wait.watch(model)
        return model

    @property
    def counted(self) -> float:
        return self._waited.seconds


@pytest.fixture
def waits() -> Iterator[Waits]:
    world = TorchTrainingWorld()
    with mock.patch.dict(os.environ):
        world.init()
        yield Waits()
        world.shutdown()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_each_backward_pass_is_one_wait(waits: Waits, is_compiled: bool) -> None:
    model: Any = waits.model(nn.Linear(4, 2))
    trained = torch.compile(model, backend="eager") if is_compiled else model
    for number in range(1, 4):
        trained(X).sum().backward()
        assert waits.counted == number


def test_two_outputs_are_one_wait(waits: Waits) -> None:
    found = waits.model(TwoHeads())(X)
    (found["outputs"][0].sum() + found["outputs"][1][0].sum()).backward()
    assert waits.counted == 1


def test_two_models_and_two_calls_of_one_are_one_wait(waits: Waits) -> None:
    one, other = (waits.model(nn.Linear(4, 2)) for _ in range(2))
    (one(X).sum() + other(X).sum()).backward()
    assert waits.counted == 1
    (one(X).sum() + one(2 * X).sum()).backward()
    assert waits.counted == 2


def test_what_averages_nothing_waits_for_nobody(waits: Waits) -> None:
    model = waits.model(nn.Linear(4, 2))
    with torch.no_grad():
        model(X)
    with model.no_sync():
        model(X).sum().backward()
    assert waits.model(Detached(4, 2))(X)[2] == "words"
    assert waits.counted == 0


def test_a_pass_that_fails_is_no_wait(waits: Waits) -> None:
    def fails(_: torch.Tensor) -> None:
        raise ValueError("in the script's own hook")

    failing = X.clone().requires_grad_()
    failing.register_hook(fails)  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="own hook"):
        waits.model(nn.Linear(4, 2))(failing).sum().backward()
    assert waits.counted == 0
    waits.model(nn.Linear(4, 2))(X).sum().backward()
    assert waits.counted == 1
