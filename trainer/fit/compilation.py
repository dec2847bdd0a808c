"""`torch.compile` for batches whose size follows the world: compiled once, not once for each size.

A resize changes a worker's share of a step, and so the first dimension of its batches. torch takes the first size it
sees for a constant and compiles again at the second. Told beforehand that this dimension varies ("Dynamic Shapes" in
torch.compiler's documentation: `mark_dynamic`), it compiles code for all sizes at once. `maybe_mark_dynamic` is the
form that lets a model insist on one size: then it is compiled for each, as without the mark.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch

from hvd_elastic.trainer.fit.evaluation import leaves


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

    for leaf in leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            torch._dynamo.maybe_mark_dynamic(leaf, 0)
