"""Copies of a tree are of the types that the script gave it."""

import collections
import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from hvd_elastic.trainer.state.memory.host_memory import HostMemory
from hvd_elastic.trainer.state.state_tree import TensorKind, Tree, clone, leaves, rebuild


class Pair(NamedTuple):
    number: int
    tensor: torch.Tensor


@dataclasses.dataclass
class Record:
    number: int
    tensor: torch.Tensor


class Labelled(dict[str, int]):
    """As a `state_dict()`, whose versions are an attribute."""

    label: list[str]


class Colour(enum.IntEnum):
    RED = 1


def labelled() -> Labelled:
    made = Labelled(a=1)
    made.label = ["x"]
    return made


def ordered() -> "collections.OrderedDict[str, int]":
    made = collections.OrderedDict(a=1, b=2)
    made.move_to_end("a")
    return made


VALUES: dict[str, Any] = {
    "None": None,
    "Counter": collections.Counter("aab"),
    "defaultdict": collections.defaultdict(list, k=[1]),
    "OrderedDict": ordered(),
    "subclass with an attribute": labelled(),
    "versions of a module": nn.BatchNorm1d(2).state_dict(),
    "namedtuple": Pair(1, torch.ones(2)),
    "dataclass": Record(1, torch.ones(2)),
    "deque": collections.deque([1, 2], maxlen=2),
    "set": {1, 2},
    "frozenset key": {frozenset({1}): 2},
    "numpy scalar": np.float32(1),
    "numpy scalar that is a float": np.float64(1),
    "array": np.arange(3),
    "enum": Colour.RED,
    "size": torch.Size([1, 2]),
    "parameter": nn.Parameter(torch.ones(2)),
    "frozen parameter": nn.Parameter(torch.ones(2), requires_grad=False),
    "leaf": torch.ones(2, requires_grad=True),
    "sparse": torch.eye(2).to_sparse(),
    "complex": 1 + 2j,
    "history": [0.5] * 9,
    "nested": [({"a": collections.Counter(b=1)},)],
}


def described(value: Any) -> Any:
    """Say all that must not change."""
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.layout, value.requires_grad, value.to_dense().tolist()
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.tolist()
    if isinstance(value, dict):
        attributes = described(vars(value)) if hasattr(value, "__dict__") else None
        return type(value), [(key, described(each)) for key, each in value.items()], attributes
    if isinstance(value, list | tuple | collections.deque):
        return type(value), [described(each) for each in value], getattr(value, "maxlen", None)
    if isinstance(value, Record):
        return type(value), value.number, described(value.tensor)
    return type(value), value


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_copy_has_the_types_of_the_original(value: Tree) -> None:
    before = described(value)
    copied = clone(value)
    assert described(copied) == before
    host = HostMemory()
    host.save({"value": value}, deferrable=lambda _: False)
    kinds = host.kinds
    back = rebuild(host.last, lambda path, tensor: kinds.get(path, TensorKind()).cast(tensor.clone()))
    assert described(back["value"]) == before


def test_a_copy_shares_nothing_with_the_original() -> None:
    value: Any = {"count": collections.Counter(a=1), "labelled": labelled(), "pair": Pair(1, torch.zeros(1)), "l": [1]}
    copied = clone(value)
    value["count"].update(a=1)
    value["labelled"].label.append("y")
    value["pair"].tensor.add_(1)
    value["l"].append(2)
    assert copied["count"] == {"a": 1}
    assert copied["labelled"].label == ["x"]
    assert copied["pair"].tensor.item() == 0
    assert copied["l"] == [1]


def test_the_factory_of_a_defaultdict_is_kept() -> None:
    copied = clone(collections.defaultdict(list))
    copied["new"].append(1)
    assert copied == {"new": [1]}


def test_leaves_are_those_that_are_replaced() -> None:
    value = {"pair": Pair(1, torch.zeros(1)), "many": [torch.ones(1), collections.OrderedDict(t=torch.ones(2))]}
    replaced = []
    rebuild(value, lambda path, tensor: replaced.append((path, tensor)))
    assert [(path, id(tensor)) for path, tensor in leaves(value)] == [(path, id(tensor)) for path, tensor in replaced]
    assert [path for path, _ in replaced] == [("pair", 1), ("many", 0), ("many", 1, "t")]
