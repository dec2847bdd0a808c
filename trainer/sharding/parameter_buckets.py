"""The parameters of an optimizer, read and written as flat buckets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import torch

from hvd_elastic.trainer.collectives import module_division
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.shares import Bucket, ParameterSpec, Piece, Share, buckets_of

BUCKET_ELEMENTS: Final = 4 << 20
"""16 MiB in float32: large enough for a network's full speed, and still memory that the C library keeps when it is
freed. It gives 32 MiB back to the kernel each time, and so a step took 0.1 s more of CPU for each 256 MB sent."""


class ParameterBuckets:
    """Parameters of all groups of an optimizer, and the buckets that they are cut into."""

    def __init__(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Take the parameters as they are; one that requires no gradient now is in no bucket.

        Raises:
            ShardingError: one is not dense.
        """
        self.weights: list[torch.Tensor] = [weight for group in groups for weight in group["params"]]
        self._groups = [number for number, group in enumerate(groups) for _ in group["params"]]
        self._trained = [weight.requires_grad for weight in self.weights]
        _check_weights(self.weights)

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """The same on every rank, whatever the size of the world. First used where the model is on its device."""
        numbered = zip(self.weights, self._trained, self._groups, strict=True)
        specs = [
            ParameterSpec(group=group, kind=(w.dtype, w.device.type), elements=w.numel() if trained else 0)
            for w, trained, group in numbered
        ]
        return buckets_of(specs, most=BUCKET_ELEMENTS)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Elements of each bucket."""
        return tuple(bucket.length for bucket in self.buckets)

    @property
    def shapes(self) -> list[torch.Size]:
        """Of each parameter."""
        return [weight.shape for weight in self.weights]

    def empty(self, bucket: Bucket, length: int) -> torch.Tensor:
        """Return new memory for elements of a bucket, where its parameters are."""
        like = self.weights[bucket.pieces[0].parameter]
        return torch.empty(length, dtype=like.dtype, device=like.device)

    def gradients(self, bucket: Bucket, share: Share) -> torch.Tensor:
        """Return a copy of the gradients of a share of a bucket; zeros for a parameter without one.

        Raises:
            ShardingError: a gradient is sparse.
        """
        start, stop = share.range(bucket.length)
        flat = self.empty(bucket, stop - start)
        _fill(flat, bucket.within(start, stop), self._gradient_of)
        return flat

    def read_weights(self, bucket: Bucket, share: Share, into: torch.Tensor) -> None:
        _fill(into, bucket.within(*share.range(bucket.length)), lambda number: self.weights[number].detach())

    def write_weights(self, bucket: Bucket, flat: torch.Tensor) -> None:
        for at, piece in bucket.within(0, bucket.length):
            _write(self.weights[piece.parameter].detach(), piece, flat[at : at + piece.stop - piece.start])

    def write_gradients(self, bucket: Bucket, flat: torch.Tensor) -> None:
        for at, piece in bucket.within(0, bucket.length):
            weight = self.weights[piece.parameter]
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            _write(weight.grad, piece, flat[at : at + piece.stop - piece.start])

    def _gradient_of(self, number: int) -> torch.Tensor | None:
        gradient = self.weights[number].grad
        if gradient is not None and gradient.layout is not torch.strided:
            raise ShardingError(
                f"ShardedOptimizer: the gradient of parameter {number} is sparse. Make it dense (sparse=False in its"
                " Embedding), or use hvd.DistributedOptimizer"
            )
        return gradient


def _fill(
    flat: torch.Tensor, pieces: Iterable[tuple[int, Piece]], source: Callable[[int], torch.Tensor | None]
) -> None:
    """Copy pieces of tensors into a flat one; zeros for those that are None."""
    for at, piece in pieces:
        target, tensor = flat[at : at + piece.stop - piece.start], source(piece.parameter)
        if tensor is None:
            target.zero_()
        else:
            target.copy_(tensor.reshape(-1)[piece.start : piece.stop])


def _write(tensor: torch.Tensor, piece: Piece, values: torch.Tensor) -> None:
    if tensor.is_contiguous():
        tensor.view(-1)[piece.start : piece.stop].copy_(values)
    else:
        flat = tensor.reshape(-1)  # a copy
        flat[piece.start : piece.stop] = values
        tensor.copy_(flat.view(tensor.shape))


def _check_weights(weights: Sequence[torch.Tensor]) -> None:
    if any(map(module_division.is_part, weights)):
        raise ShardingError(
            "ShardedOptimizer: fully_shard has divided the parameters, and with them the state of any optimizer: use a "
            "plain one, such as torch.optim.AdamW"
        )
    problems = [
        f"parameter {number} is a tensor of {weight.layout}"
        for number, weight in enumerate(weights)
        if weight.layout is not torch.strided
    ]
    if problems:
        raise ShardingError(f"ShardedOptimizer: {', '.join(problems)}: only dense ones can be sharded")
