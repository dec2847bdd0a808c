"""Shares of an optimizer's state in host memory."""

from collections.abc import Mapping, Sequence

import torch

from hvd_elastic.trainer.sharding.shares import Length, Share

Shards = list[dict[str, torch.Tensor]]
"""For each bucket, flat tensors by the name that the optimizer gives them: all of the length of one share."""


def empty_shards(outline: Shards, lengths: Sequence[Length], share: Share) -> Shards:
    """Return new host memory for a share. `outline`: shards of any length, for names and dtypes."""
    return [
        {name: torch.empty(stop - start, dtype=like.dtype) for name, like in bucket.items()}
        for bucket, (start, stop) in zip(outline, map(share.range, lengths), strict=True)
    ]


def on_host(shards: Sequence[Mapping[str, torch.Tensor]]) -> Shards:
    """Return shards in host memory: the tensors themselves where they are there already."""
    return [{name: tensor.cpu() for name, tensor in each.items()} for each in shards]


def copied_to_host(shards: Sequence[Mapping[str, torch.Tensor]]) -> Shards:
    """Return shards in host memory of their own."""
    return [{name: tensor.to("cpu", copy=True) for name, tensor in each.items()} for each in shards]


def reused(spare: Shards | None, fresh: Shards) -> Shards:
    """Return memory that is not needed any more where it fits, else what is `fresh`: the kernel gives that when it is
    first written, and takes ten times as long for it as a copy into known memory does.
    """
    if spare is None:
        return fresh
    return [
        {name: old[name] if name in old and _is_alike(old[name], tensor) else tensor for name, tensor in bucket.items()}
        for old, bucket in zip(spare, fresh, strict=True)
    ]


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
