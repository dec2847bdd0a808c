"""Takes a content apart into tensors with names, and one text that says where they were: for flat formats."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.exchange.plain_content import Content
from hvd_elastic.trainer.checkpoint.format.archive import DAMAGE, restore_values
from hvd_elastic.trainer.checkpoint.format.capture import Capture

TREE: Final = "hvd_elastic.tree"
"""Name of that text, in the formats that have names."""
_RESERVED: Final = frozenset({TREE, "__metadata__"})
"""Names that no tensor may have. safetensors has `__metadata__` beside its tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTensors:
    """A content taken apart."""

    tensors: Mapping[str, torch.Tensor]
    """By path, with dots: `model.layer.weight`. Tied ones are there once, under their first path."""
    tied: Mapping[str, str]
    """The further paths of tied tensors, and the name of each."""
    tree: str
    """The rest, as JSON, in the form of an archive's tree."""


def take_apart(content: Content) -> NamedTensors:
    """Give each tensor a name of its own."""
    capture = Capture.take(content)
    used = set(_RESERVED)
    names, tied = [], {}
    for places in capture.places:
        first, *others = [_unique(_name(path), used) for path in places]
        names.append(first)
        tied.update(dict.fromkeys(others, first))
    tensors = dict(zip(names, capture.tensors, strict=True))
    return NamedTensors(tensors=tensors, tied=tied, tree=json.dumps({"names": names, "values": capture.values}))


def put_together(tree: str, tensors: Mapping[str, torch.Tensor]) -> Content:
    """Return the content that was taken apart. Raises CorruptError: they do not belong together."""
    try:
        described = json.loads(tree)
        values = restore_values(described["values"], [tensors[name] for name in described["names"]])
    except DAMAGE as error:
        raise CorruptError(f"its tensors are not those that `{TREE}` describes: {error!r}") from error
    if not isinstance(values, dict):
        raise CorruptError(f"`{TREE}` is not a dictionary")
    return values


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(part[0]) if isinstance(part, tuple) and len(part) == 1 else str(part) for part in path)


def _unique(name: str, used: set[str]) -> str:
    """Return the name, longer if another tensor has it: `{"a.b": ...}` and `{"a": {"b": ...}}` read the same."""
    while name in used:
        name += "_"
    used.add(name)
    return name
