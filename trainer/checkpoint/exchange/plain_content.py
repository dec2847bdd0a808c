"""Makes plain what a State may hold: tensors, and values that every reader of the exported formats has."""

import datetime as dt
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import torch

Content = dict[str, Any]
"""Nested containers of tensors and plain values."""

_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, torch.Size, torch.dtype, torch.device})
"""Types that stay what they are. `torch.load` takes them without running code, as of 2.4 (`weights_only`)."""


class Plain:
    """One conversion. Tensors that were tied are tied in the result."""

    def __init__(self) -> None:
        self.unfit: list[str] = []
        """`path: type` of each value that has no plain form, such as a sparse tensor. It is left out."""
        self._tied: dict[tuple[object, ...], torch.Tensor] = {}

    def content(self, values: Mapping[str, Any]) -> Content:
        """Return the plain form of `values`, which shares the memory of its tensors where it can.

        Tensors are dense, row-major, on the CPU and without gradients; arrays of numbers become tensors. Named tuples
        become tuples, other dictionaries, sets and queues those that are built in, and other values texts and numbers.
        """
        return {str(name): value for name, value in self._items(values, ())}

    def _items(self, values: Mapping[Any, Any], path: tuple[str, ...]) -> list[tuple[Any, Any]]:
        pairs = [(_key(key), self._value(value, (*path, str(key)))) for key, value in values.items()]
        return [(key, value) for key, value in pairs if value is not _UNFIT]

    def _members(self, values: Any, path: tuple[str, ...]) -> list[Any]:
        members = [self._value(value, (*path, str(index))) for index, value in enumerate(values)]
        return [member for member in members if member is not _UNFIT]

    def _value(self, value: Any, path: tuple[str, ...]) -> Any:
        if type(value) in _PLAIN:
            return value
        for kind, convert in _CONTAINERS.items():
            if isinstance(value, kind):
                return convert(self, value, path)
        for kind, simplify in _SIMPLIFIED.items():
            if isinstance(value, kind):
                return simplify(value)
        return self._leave_out(value, path)

    def _leave_out(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = f"tensor of {value.layout}" if isinstance(value, torch.Tensor) else type(value).__qualname__
        self.unfit.append(f"{'.'.join(path)}: {kind}")
        return _UNFIT

    def _mapping(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> Any:
        if isinstance(value, Counter):  # a scheduler's milestones
            return Counter({_key(key): count for key, count in value.items()})
        items = self._items(value, path)
        if not isinstance(value, OrderedDict):
            return dict(items)
        ordered = OrderedDict(items)
        # A `state_dict()` has the versions of its modules there.
        vars(ordered).update(self._items(vars(value), path))
        return ordered

    def _tensor(self, tensor: torch.Tensor, path: tuple[str, ...]) -> Any:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
            return self._leave_out(tensor, path)
        identity = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        if tensor.numel() and identity in self._tied:
            return self._tied[identity]
        plain = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
        if plain.untyped_storage().nbytes() != plain.nbytes or plain.stride() != _row_major(plain.shape):
            # A part of a larger tensor, which would be written with it; or a stride where there is nothing to stride.
            plain = plain.clone(memory_format=torch.contiguous_format)
        self._tied[identity] = plain
        return plain

    def _array(self, array: "np.ndarray[Any, Any]", _path: tuple[str, ...]) -> Any:
        if array.dtype.kind in "biufc":
            try:
                return torch.from_numpy(np.array(array, order="C"))
            except TypeError:  # numpy has numbers that torch lacks
                return array.tolist()
        return (array.astype(str) if array.dtype.kind in "mM" else array).tolist()


def _row_major(shape: torch.Size) -> tuple[int, ...]:
    return torch.empty(shape, device="meta").stride()


_UNFIT: Final = object()

_CONTAINERS: Final[Mapping[type, Callable[[Plain, Any, tuple[str, ...]], Any]]] = {
    torch.Tensor: Plain._tensor,
    np.ndarray: Plain._array,
    Mapping: Plain._mapping,
    tuple: lambda plain, value, path: tuple(plain._members(value, path)),
    set: lambda _plain, value, _path: set(map(_key, value)),
    frozenset: lambda _plain, value, _path: set(map(_key, value)),
    list: Plain._members,
    deque: Plain._members,
    range: lambda _plain, value, _path: list(value),
}

_SIMPLIFIED: Final[Mapping[type, Callable[[Any], Any]]] = {
    Enum: lambda value: f"{type(value).__qualname__}.{value.name}",
    str: str,
    bytearray: bytes,
    complex: lambda value: [value.real, value.imag],
    np.datetime64: str,
    np.timedelta64: str,
    np.generic: lambda value: value.item(),
    PurePath: str,
    dt.date: lambda value: value.isoformat(),
    dt.time: lambda value: value.isoformat(),
    dt.timedelta: lambda value: value.total_seconds(),
    bool: bool,
    int: int,
    float: float,
}
"""By type, subclasses included; the first that fits."""


def _key(key: Any) -> Any:
    if type(key) in _PLAIN:
        return key
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    if isinstance(key, frozenset):
        return tuple(sorted(map(str, key)))
    for kind, simplify in _SIMPLIFIED.items():
        if isinstance(key, kind) and kind is not complex:
            return simplify(key)
    return str(key)
