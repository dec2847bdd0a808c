"""Snapshots like those of a training process."""

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
    """Whether two values are equal, including tensors and arrays."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        assert isinstance(right, (list, tuple))
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right
