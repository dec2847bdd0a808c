"""The content of a sharded optimizer from, and to, the state of one that is not sharded."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.host_shards import empty_shards
from hvd_elastic.trainer.sharding.sharded_content import ShardedContent
from hvd_elastic.trainer.sharding.shares import WHOLE, Bucket


def to_plain(
    content: ShardedContent, buckets: Sequence[Bucket], shapes: Sequence[torch.Size]
) -> dict[int, dict[str, Any]]:
    """Return the `state` of a plain `state_dict()`, by the number of the parameter."""
    state: dict[int, dict[str, Any]] = {}
    for bucket, tensors, numbers in zip(buckets, content.shards, content.numbers, strict=True):
        for at, piece in bucket.within(0, bucket.length):
            if not tensors and not numbers:
                continue
            own = state.setdefault(piece.parameter, {})
            for name, flat in tensors.items():
                if name not in own:
                    own[name] = torch.empty(shapes[piece.parameter], dtype=flat.dtype)
                own[name].view(-1)[piece.start : piece.stop] = flat[at : at + piece.stop - piece.start]
            for name, value in numbers.items():  # each parameter's own: an optimizer counts in place
                own.setdefault(name, value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value)
    return dict(sorted(state.items()))


def from_plain(
    state: Mapping[int, Mapping[str, Any]], buckets: Sequence[Bucket], shapes: Sequence[torch.Size]
) -> ShardedContent:
    """Return the whole content of the `state` of a plain `state_dict()`.

    Raises:
        ShardingError: the parameters of a bucket have not been stepped alike, or a tensor has another shape than its
            parameter.
    """
    outline, numbers = [], []
    for bucket in buckets:
        members = sorted({piece.parameter for piece in bucket.pieces})
        outline.append({name: value for name, value in state.get(members[0], {}).items() if is_sharded(value)})
        numbers.append({name: value for name, value in state.get(members[0], {}).items() if not is_sharded(value)})
        for number in members:
            _check_alike(state, members[0], number, shapes[number])
    whole = empty_shards(outline, [bucket.length for bucket in buckets], WHOLE)
    for bucket, tensors in zip(buckets, whole, strict=True):
        for at, piece in bucket.within(0, bucket.length):
            for name, flat in tensors.items():
                given = state[piece.parameter][name].detach().reshape(-1)
                flat[at : at + piece.stop - piece.start] = given[piece.start : piece.stop]
    copied = [{name: _copied(value) for name, value in each.items()} for each in numbers]
    return ShardedContent(share=WHOLE, shards=whole, numbers=copied)


def is_sharded(value: Any) -> bool:
    """Whether a value of an optimizer's state has one number for each element of a parameter."""
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _check_alike(state: Mapping[int, Mapping[str, Any]], first: int, other: int, shape: torch.Size) -> None:
    one, two = state.get(first, {}), state.get(other, {})
    if one.keys() != two.keys() or any(
        not torch.equal(torch.as_tensor(one[name]), torch.as_tensor(two[name]))
        for name in one
        if not is_sharded(one[name]) and one[name] is not None
    ):
        raise ShardingError(
            f"ShardedOptimizer: the state to load has stepped parameter {first} and parameter {other} a different"
            " number of times, and one count is kept for many parameters. Give them groups of their own, or begin anew"
        )
    wrong = [name for name, value in two.items() if is_sharded(value) and value.shape != shape]
    if wrong:
        raise ShardingError(
            f"ShardedOptimizer: {', '.join(wrong)} of parameter {other} in the state to load has the shape "
            f"{tuple(two[wrong[0]].shape)}, and the parameter {tuple(shape)}: it is of another model"
        )
