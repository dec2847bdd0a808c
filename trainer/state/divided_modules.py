"""Modules whose weights are divided over the ranks of one world: a lost rank would take its part with it."""

import sys
from collections.abc import Iterator, Mapping

import torch


def divided_modules(values: Mapping[str, object]) -> Iterator[str]:
    """Name those of a state that FSDP, of either kind, or tensor parallelism has divided."""
    return (name for name, value in values.items() if isinstance(value, torch.nn.Module) and _is_divided(value))


def _is_divided(module: torch.nn.Module) -> bool:
    """Without an import of what takes long, and what a script that divides has imported."""
    tensor, fsdp = sys.modules.get("torch.distributed.tensor"), sys.modules.get("torch.distributed.fsdp")
    weights = tensor is not None and any(isinstance(weight, tensor.DTensor) for weight in module.parameters())
    return weights or (
        fsdp is not None and any(isinstance(each, fsdp.FullyShardedDataParallel) for each in module.modules())
    )
