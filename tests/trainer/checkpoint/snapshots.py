"""Snapshots like those of a training process."""

import struct
from collections import deque

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
    match left, right:
        case torch.Tensor(), torch.Tensor():
            alike = (left.dtype, left.shape, left.requires_grad) == (right.dtype, right.shape, right.requires_grad)
            return alike and _raw_bytes(left) == _raw_bytes(right)
        case np.ndarray(), np.ndarray():
            return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
        case np.generic(), np.generic():
            return (left.dtype, left.tobytes()) == (right.dtype, right.tobytes())
        case float(), float():
            return struct.pack("d", left) == struct.pack("d", right) or (left != left and right != right)
        case complex(), complex():
            return same((left.real, left.imag), (right.real, right.imag))
        case dict(), dict():
            factories = getattr(left, "default_factory", None), getattr(right, "default_factory", None)
            return factories[0] is factories[1] and same(list(left.items()), list(right.items()))
        case (list() | tuple() | deque(), list() | tuple() | deque()):
            bounds = getattr(left, "maxlen", None) == getattr(right, "maxlen", None)
            return bounds and len(left) == len(right) and all(map(same, left, right))
        case (set() | frozenset(), set() | frozenset()):
            return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    return left == right


def _raw_bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()
