"""What a sharded optimizer keeps: one share of its state, or all of it, as an optimizer that is not sharded has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.host_shards import Shards, empty_shards
from hvd_elastic.trainer.sharding.shares import WHOLE, Bucket, Share

SHARE: Final = "share"
"""Key by which the state of one rank's share is told from a plain `state_dict()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerContent:
    """The state of an optimizer: that of some elements of each bucket, and the numbers that hold for a whole bucket."""

    share: Share
    shards: Shards
    """Before the first step without names, as an optimizer has no state then."""
    numbers: list[dict[str, Any]]
    """For each bucket what is not per element, such as the count of steps: the same on every rank."""

    def state_dict(self) -> dict[str, Any]:
        """Return it as containers of tensors and plain values. The tensors are its own."""
        share = {"rank": self.share.rank, "size": self.share.size}
        return {SHARE: share, "shards": self.shards, "numbers": self.numbers}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        return cls(share=Share(**state[SHARE]), shards=state["shards"], numbers=state["numbers"])

    @classmethod
    def empty(cls, buckets: Sequence[Bucket], share: Share) -> Self:
        """Return the content before the first step."""
        return cls(share=share, shards=[{} for _ in buckets], numbers=[{} for _ in buckets])

    @property
    def is_empty(self) -> bool:
        """Whether no step was taken."""
        return not any(self.shards) and not any(self.numbers)

    def cut(self, share: Share, buckets: Sequence[Bucket]) -> "OptimizerContent":
        """Return a share of the whole, in memory of its own."""
        shards = [
            {name: tensor[slice(*share.range(bucket.length))].clone() for name, tensor in tensors.items()}
            for bucket, tensors in zip(buckets, self.shards, strict=True)
        ]
        return OptimizerContent(share=share, shards=shards, numbers=self.numbers)


def outlined(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `state_dict()` of a sharded optimizer with empty tensors for those of its share."""
    shards = [{name: torch.empty(0, dtype=tensor.dtype) for name, tensor in each.items()} for each in state["shards"]]
    return {**state, "shards": shards}


def to_plain(
    content: OptimizerContent, buckets: Sequence[Bucket], shapes: Sequence[torch.Size]
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
) -> OptimizerContent:
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
    return OptimizerContent(share=WHOLE, shards=whole, numbers=copied)


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
