"""What a rank keeps of a divided state: one share of it, or all of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import torch

from hvd_elastic.trainer.sharding.host_shards import Shards
from hvd_elastic.trainer.sharding.shares import Bucket, Length, Share

SHARE: Final = "share"
"""Key by which the state of one rank's share is told from a plain `state_dict()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedContent:
    """A state: some elements of each bucket, and the numbers that hold for a whole bucket."""

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

    def cut(self, share: Share, buckets: Sequence[Bucket]) -> "ShardedContent":
        """Return a share of the whole, in memory of its own."""
        shards = [
            {name: tensor[slice(*share.range(bucket.length))].clone() for name, tensor in tensors.items()}
            for bucket, tensors in zip(buckets, self.shards, strict=True)
        ]
        return ShardedContent(share=share, shards=shards, numbers=self.numbers)


class ShardedObject(Protocol):
    """What a State has of which each rank keeps a share."""

    @property
    def lengths(self) -> Sequence[Length]:
        """Of each bucket: the same on every rank, whatever the size of the world."""

    @property
    def content(self) -> ShardedContent:
        """What this rank keeps. Its tensors are the object's own."""

    @property
    def begins_divided(self) -> bool:
        """Whether each rank may begin training with a share of its own, where no rank has all of it."""

    def place(self, content: ShardedContent) -> None:
        """Keep this from now on, and nothing of what was kept. Its memory is the object's own."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a commit copies: the content's, and what is not divided."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave, or the plain state of all ranks together."""

    def gathered(self, state_dict: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return on rank 0 the plain state of which each rank gives its share. A collective operation."""


def outlined(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `state_dict()` of a sharded object with empty tensors for those of its share."""
    shards = [{name: torch.empty(0, dtype=tensor.dtype) for name, tensor in each.items()} for each in state["shards"]]
    return {**state, "shards": shards}
