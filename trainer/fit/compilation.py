"""`torch.compile` for batches whose size follows the world: compiled once, not once for each size.

A resize changes a worker's share of a step, and so the first dimension of its batches. torch takes the first size it
sees for a constant and compiles again at the second. Told beforehand that this dimension varies ("Dynamic Shapes" in
torch.compiler's documentation: `mark_dynamic`), it compiles code for all sizes at once. `maybe_mark_dynamic` is the
form that lets a model insist on one size: then it is compiled for each, as without the mark.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch


def compiled(model: torch.nn.Module, options: bool | Mapping[str, Any]) -> torch.nn.Module:
    """Return the model as `torch.compile` returns it; the model itself if `options` is False."""
    if options is False:
        return model
    chosen: dict[str, Any] = {} if options is True else dict(options)
    made: Any = torch.compile(model, **chosen)
    return cast("torch.nn.Module", made)


def mark_batch(batch: Any) -> None:
    """Mark the first dimension of each tensor of a batch as one that varies."""
    import torch._dynamo

    for tensor in _tensors(batch):
        if tensor.dim():
            torch._dynamo.maybe_mark_dynamic(tensor, 0)


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value)
