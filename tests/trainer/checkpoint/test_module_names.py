"""One module under each wrapper that scripts put around it: what is stored, and what each of them can load."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from hvd_elastic.trainer.checkpoint.module_names import under_names_of, under_plain_names


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))


def compiled(module: torch.nn.Module) -> torch.nn.Module:
    return cast("torch.nn.Module", torch.compile(module))


def with_a_compiled_part() -> torch.nn.Module:
    module = network()
    module[0] = compiled(module[0])
    return module


WRAPPED: dict[str, Callable[[], torch.nn.Module]] = {
    "plain": network,
    "compiled": lambda: compiled(network()),
    "parallel": lambda: torch.nn.DataParallel(network()),
    "parallel, compiled": lambda: compiled(torch.nn.DataParallel(network())),
    "compiled, parallel": lambda: torch.nn.DataParallel(compiled(network())),
    "a compiled part": with_a_compiled_part,
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_the_plain_names_are_stored(kind: str) -> None:
    module = WRAPPED[kind]()
    assert list(under_plain_names(module.state_dict(), module)) == list(network().state_dict())


@pytest.mark.parametrize("now", WRAPPED)
@pytest.mark.parametrize("then", WRAPPED)
def test_each_loads_what_any_other_has_written(then: str, now: str) -> None:
    """Under the names that it had, too, as versions before this one stored them."""
    module, written = WRAPPED[now](), WRAPPED[then]().state_dict()
    module.load_state_dict(under_names_of(module.state_dict().keys(), written))
    for mine, theirs in zip(module.state_dict().values(), written.values(), strict=True):
        assert torch.equal(mine, theirs)


def test_where_nothing_is_wrapped_nothing_is_copied() -> None:
    module = network()
    state = module.state_dict()
    assert under_plain_names(state, module) is state
    assert under_names_of(module.state_dict().keys(), state) is state


def test_a_part_of_that_name_is_no_wrapper() -> None:
    average = AveragedModel(network())
    state = average.state_dict()
    assert list(under_plain_names(state, average)) == list(state)
    assert under_names_of(average.state_dict().keys(), state) is state


@pytest.mark.parametrize(
    ("present", "stored"),
    [
        (("weight",), {"other": 1}),
        (("module.weight", "weight"), {"weight": 1, "_orig_mod.weight": 2}),
    ],
)
def test_what_the_module_does_not_have_keeps_its_name(present: tuple[str, ...], stored: Mapping[str, Any]) -> None:
    assert under_names_of(present, stored) == stored
