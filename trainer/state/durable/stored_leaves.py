"""What a checkpoint holds, leaf by leaf, for people."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from hvd_elastic.trainer.state.saved_state import SavedState

_WIDTH: Final = 60
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLeaf:
    """A tensor or an array; or a value, or a container, without any in it."""

    name: str
    """Its path, with dots."""
    kind: str
    """dtype of a tensor, or type of a value."""
    shape: tuple[int, ...] | None = None
    """None for what is neither a tensor nor an array."""
    size_bytes: int | None = None
    """As `shape`. Tied tensors have the same bytes."""
    value: str = ""
    """The beginning of a value."""

    def row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.kind,
            "shape": None if self.shape is None else list(self.shape),
            "bytes": self.size_bytes,
            "value": self.value or None,
        }


def leaves_of(saved: SavedState) -> Iterator[StoredLeaf]:
    """Yield what is stored under each name, in order. Needs no content of tensors."""
    for name in saved:
        yield from _leaves(name, saved[name])


def _leaves(path: str, value: Any) -> Iterator[StoredLeaf]:
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        yield StoredLeaf(name=path, kind=kind, shape=tuple(value.shape), size_bytes=value.nbytes)
    elif isinstance(value, np.ndarray):
        yield StoredLeaf(name=path, kind=f"numpy {value.dtype}", shape=value.shape, size_bytes=value.nbytes)
    elif not _has_tensors(value):
        text = repr(value)
        shown = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
        yield StoredLeaf(name=path, kind=type(value).__name__, value=shown)
    else:
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in pairs:
            yield from _leaves(f"{path}.{key}", each)


def _has_tensors(value: Any) -> bool:
    if isinstance(value, torch.Tensor | np.ndarray):
        return True
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_tensors, value))
