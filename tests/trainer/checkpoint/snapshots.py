"""Snapshots like those of a training process."""

import struct
from collections import deque
from typing import Any

import numpy as np
import torch

MIB = 1 << 20


def small(step: int) -> dict[str, object]:
    """A few bytes, with values that depend on the step."""
    return {"step": step, "weight": torch.full((7,), float(step)), "history": [step, step + 1]}


def large(step: int, *, mib: int = 12) -> dict[str, object]:
    """Enough bytes for several parts of 5 MiB."""
    generator = torch.Generator().manual_seed(step)
    return {"step": step, "weight": torch.randint(0, 255, (mib * MIB,), dtype=torch.uint8, generator=generator)}


def same(left: object, right: object) -> bool:
    """Whether two values are equal and of the same types, all the way down, in the same order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor | np.ndarray | np.generic | float | complex):
        return _same_numbers(left, right)
    if isinstance(left, list | tuple | deque | set | frozenset | dict):
        attributes = zip(_attributes(left), _attributes(right), strict=True)
        return _same_items(left, right) and all(a is b or same(a, b) for a, b in attributes)
    return left == right


def _same_numbers(left: Any, right: Any) -> bool:
    match left:
        case torch.Tensor():
            alike = (left.dtype, left.shape, left.requires_grad) == (right.dtype, right.shape, right.requires_grad)
            return alike and _raw_bytes(left) == _raw_bytes(right)
        case np.ndarray() | np.generic():
            return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
        case complex():
            return same((left.real, left.imag), (right.real, right.imag))
    return struct.pack("d", left) == struct.pack("d", right) or (left != left and right != right)


def _same_items(left: Any, right: Any) -> bool:
    if len(left) != len(right):
        return False
    match left:
        case dict():
            return all(map(same, left.items(), right.items()))
        case set() | frozenset():
            return all(any(same(a, b) for b in right) for a in left)
    return all(map(same, left, right))


def _attributes(value: object) -> tuple[object, ...]:
    """Return what a container has beside its items."""
    own = getattr(value, "__dict__", None) if type(value).__module__ == "collections" else None
    return getattr(value, "default_factory", None), getattr(value, "maxlen", None), own


def _raw_bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()
