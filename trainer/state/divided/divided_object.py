"""What a State keeps of which each rank has a part that torch has cut: weights, or the state of an optimizer.

A share is in one of two places: in the parts on the device; or staged, because they were divided over another world
since, or because all of it was loaded. The transfer into the present world puts it into the parts.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from hvd_elastic.trainer.sharding.sharded_content import ShardedContent
from hvd_elastic.trainer.sharding.shares import WHOLE, Rows, Share

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

REST: Final = "rest"
"""Key of what is not divided: buffers, and what belongs to parameters that the script has left out."""


class DividedObject:
    """Each divided parameter is a bucket."""

    def __init__(self) -> None:
        self._staged: ShardedContent | None = None

    def parts(self) -> "list[DTensor]":
        """Return the divided parameters, each once."""
        raise NotImplementedError

    def _read(self) -> ShardedContent:
        """Return what the parts hold. Its tensors are their own."""
        raise NotImplementedError

    def _write(self, content: ShardedContent) -> None:
        """Copy a content into the parts, which are of the same share."""
        raise NotImplementedError

    @property
    def lengths(self) -> Sequence[Rows]:
        """Rows of each parameter."""
        return [rows_of(part) for part in self.parts()]

    @property
    def content(self) -> ShardedContent:
        """What this rank keeps. Its tensors are the object's own."""
        return self._staged if self._staged is not None else self._read()

    def place(self, content: ShardedContent) -> None:
        """Keep this from now on, and nothing of what was kept. Its memory is the object's own."""
        if self._fits(content):
            self._write(content)
            self._staged = None
        else:
            self._staged = content

    def take(self, content: ShardedContent) -> None:
        """As `place`, of a content whose memory is another's, such as a commit's."""
        self.place(content if self._fits(content) else owned(content))

    def _fits(self, content: ShardedContent) -> bool:
        return content.share == share_of(self.parts()) and self.is_whole(content)

    def is_whole(self, content: ShardedContent) -> bool:
        """Whether a content has all elements of its share, and is not the outline of another rank's (`outlined`)."""
        ranges = map(content.share.range, self.lengths)
        return all(
            tensor.numel() == stop - start
            for (start, stop), tensors in zip(ranges, content.shards, strict=True)
            for tensor in tensors.values()
        )

    def leave_world(self) -> None:
        """Hold on to what the parts hold, which are about to become those of another world."""
        self._staged = self.content

    def enter_world(self) -> None:
        """Put what was held into the new parts, if it is the same share."""
        assert self._staged is not None
        self.place(self._staged)


def rows_of(part: "DTensor") -> Rows:
    """Return how a parameter is cut."""
    return Rows(count=part.shape[0], width=math.prod(part.shape[1:]))


def share_of(parts: "Sequence[DTensor]") -> Share:
    """Return the share of the world that parts were divided over."""
    if not parts:
        return WHOLE
    mesh = parts[0].device_mesh
    # Not `get_local_rank()`: that asks the group, whose name is the same in each world, and so the present one.
    (rank,) = mesh.get_coordinate() or (0,)
    return Share(rank=rank, size=mesh.size())


def owned(content: ShardedContent) -> ShardedContent:
    """Return a content that keeps its memory while that of the commit that it is from is used again."""
    shards = [{name: tensor.clone() for name, tensor in tensors.items()} for tensors in content.shards]
    numbers = [{name: copied(value) for name, value in values.items()} for values in content.numbers]
    return ShardedContent(share=content.share, shards=shards, numbers=numbers)


def copied(value: Any) -> Any:
    """Return a number of a state in memory of its own."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
