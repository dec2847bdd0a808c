import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hvd_elastic.trainer.elastic.mistakes import late_load
from hvd_elastic.trainer.elastic.mistakes.late_load import LateLoadError


def training(steps: int = 5) -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return SimpleNamespace(model=model, optimizer=optimizer, step_count=steps, end_training=lambda: None)


def step(state: Any) -> None:
    state.model(torch.ones(2)).sum().backward()
    state.optimizer.step()
    state.step_count += 1


def other(state: Any) -> dict[str, Any]:
    return {name: each + 1 for name, each in state.model.state_dict().items()}


def test_weights_that_are_loaded_again_are_refused_at_the_first_step() -> None:
    state = training()
    with late_load.refused(state):
        state.model.load_state_dict(other(state))
        with pytest.raises(
            LateLoadError, match=r"test_late_load.py:\d+ in test_weights.*: the training function loads weights"
        ):
            step(state)


def test_a_part_of_a_model_is_enough() -> None:
    state = training()
    with late_load.refused(state):
        state.model[1].load_state_dict({name: each + 1 for name, each in state.model[1].state_dict().items()})
        with pytest.raises(LateLoadError):
            step(state)


def test_what_is_swapped_back_before_the_step_is_no_mistake() -> None:
    state = training()
    with late_load.refused(state):
        kept = copy.deepcopy(state.model.state_dict())
        state.model.load_state_dict(other(state))
        state.model.load_state_dict(kept)
        step(state)


def test_later_loads_are_a_way_to_train() -> None:
    state = training()
    with late_load.refused(state):
        step(state)
        state.model.load_state_dict(other(state))
        step(state)


def test_before_training_has_begun_any_weights_may_be_loaded() -> None:
    state = training(steps=0)
    with late_load.refused(state):
        state.model.load_state_dict(other(state))
        step(state)


def test_nothing_is_left_behind() -> None:
    state = training()
    with late_load.refused(state):
        pass
    state.model.load_state_dict(other(state))
    step(state)
    assert not state.model._load_state_dict_pre_hooks
    assert not state.optimizer._optimizer_step_pre_hooks
