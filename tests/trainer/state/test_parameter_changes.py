from collections.abc import Callable

import pytest
import torch
from torch import nn

from hvd_elastic.trainer.state.parameter_changes import ParameterChanges
from hvd_elastic.trainer.state.state_objects import StateError, StateObjects


class Script:
    """The objects of a training that begins with a frozen body, and a head that its optimizer does not know."""

    def __init__(self) -> None:
        self.model = nn.ModuleDict({"body": nn.Linear(3, 3), "neck": nn.Linear(3, 3), "head": nn.Linear(3, 1)})
        self.model["body"].requires_grad_(False)
        self.optimizer = torch.optim.SGD(
            [*self.model["body"].parameters(), *self.model["neck"].parameters()], lr=0.1, momentum=0.9
        )
        self.changes = ParameterChanges(StateObjects(self, ("model", "optimizer")))
        self.changes.tree()

    def release(self) -> None:
        self.model["body"].requires_grad_(True)

    def freeze(self) -> None:
        self.model["neck"].requires_grad_(False)

    def add(self) -> None:
        self.optimizer.add_param_group({"params": list(self.model["head"].parameters()), "lr": 0.5})

    @property
    def required(self) -> dict[str, bool]:
        return {name: each.requires_grad for name, each in self.model.named_parameters()}

    @property
    def groups(self) -> list[list[str]]:
        names = {id(each): name for name, each in self.model.named_parameters()}
        return [[names[id(each)] for each in group["params"]] for group in self.optimizer.param_groups]


CHANGES: list[list[Callable[[Script], None]]] = [
    [],
    [Script.release],
    [Script.freeze],
    [Script.add],
    [Script.release, Script.freeze, Script.add],
]


@pytest.mark.parametrize("before", CHANGES)
@pytest.mark.parametrize("after", CHANGES)
def test_any_state_leads_to_any_other(
    before: list[Callable[[Script], None]], after: list[Callable[[Script], None]]
) -> None:
    """As a newcomer takes it over, and as training goes back or on from it."""
    one, other = Script(), Script()
    for change in before:
        change(one)
    for change in after:
        change(other)
    one.changes.load(other.changes.tree())
    assert (one.required, one.groups) == (other.required, other.groups)
    one.optimizer.load_state_dict(other.optimizer.state_dict())
    assert one.changes.tree() == other.changes.tree()


def test_a_group_that_is_gone_leaves_no_state() -> None:
    script = Script()
    kept = script.changes.tree()
    script.release()
    script.add()
    script.model["head"](script.model["neck"](script.model["body"](torch.ones(3)))).sum().backward()
    script.optimizer.step()
    script.changes.load(kept)
    assert set(script.optimizer.state) == set(script.optimizer.param_groups[0]["params"])


def test_parameters_of_no_module_cannot_be_told() -> None:
    script = Script()
    script.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(StateError, match=r"state.optimizer: a group was added .* give their module to State"):
        script.changes.tree()
