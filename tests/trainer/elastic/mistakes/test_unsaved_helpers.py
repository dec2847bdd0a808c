"""Schedulers, scalers and averages that training uses and the state does not have."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from hvd_elastic.trainer.elastic.mistakes.unsaved_helpers import UnsavedHelpers


class Training:
    """A model with its optimizer, and what one step of training does with a helper."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self) -> None:
        self.model(torch.ones(2, 3)).sum().backward()
        self.optimizer.step()

    def scheduler(self) -> tuple[Any, Callable[[], object]]:
        scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 30)
        return scheduler, scheduler.step

    def plateau(self) -> tuple[Any, Callable[[], object]]:
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)
        return scheduler, lambda: scheduler.step(1.0)

    def scaler(self) -> tuple[Any, Callable[[], object]]:
        scaler = torch.amp.GradScaler("cpu")
        return scaler, lambda: scaler.scale(torch.ones(1))

    def average(self) -> tuple[Any, Callable[[], object]]:
        average = AveragedModel(self.model)
        return average, lambda: average.update_parameters(self.model)

    def state(self, **more: object) -> SimpleNamespace:
        return SimpleNamespace(model=self.model, optimizer=self.optimizer, _internal=[more], **more)


HELPERS = ("scheduler", "plateau", "scaler", "average")


@pytest.mark.parametrize("helper", HELPERS)
def test_one_that_is_used_and_unsaved_is_a_mistake(helper: str) -> None:
    training = Training()
    made, use = getattr(training, helper)()
    unsaved = UnsavedHelpers(training.state())
    training.step()
    assert unsaved.find() == []
    use()
    (mistake,) = unsaved.find()
    assert type(made).__name__ in mistake
    assert "is not part of the state" in mistake


@pytest.mark.parametrize("helper", HELPERS)
def test_one_in_the_state_is_none(helper: str) -> None:
    training = Training()
    made, use = getattr(training, helper)()
    unsaved = UnsavedHelpers(training.state(helper=made))
    training.step()
    use()
    assert unsaved.is_empty
    assert unsaved.find() == []


@pytest.mark.parametrize("helper", HELPERS)
def test_a_value_of_the_state_may_hold_it(helper: str) -> None:
    training = Training()
    made, _ = getattr(training, helper)()
    assert UnsavedHelpers(training.state(helpers=SimpleNamespace(all={"one": [made]}))).is_empty


def test_the_parts_of_a_scheduler_in_the_state_are_in_it() -> None:
    training = Training()
    parts: list[Any] = [torch.optim.lr_scheduler.StepLR(training.optimizer, n) for n in (3, 5)]
    both = torch.optim.lr_scheduler.SequentialLR(training.optimizer, parts, milestones=[10])
    assert UnsavedHelpers(training.state(scheduler=both)).is_empty


def test_what_belongs_to_another_model_is_another_matter() -> None:
    training, other = Training(), Training()
    other.model = torch.nn.Linear(7, 1)
    helpers = [other.scheduler(), (AveragedModel(other.model), None)]
    assert UnsavedHelpers(training.state()).is_empty
    del helpers


def test_a_scaler_that_is_turned_off_scales_nothing() -> None:
    training = Training()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    unsaved = UnsavedHelpers(training.state())
    scaler.scale(torch.ones(1))
    assert unsaved.find() == []
