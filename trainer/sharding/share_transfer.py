"""Moves elements between the shares of ranks, in host memory: at a resize, at a commit, and to who stores the state.

Each bucket is one alltoall of bytes, so that a rank needs room for its own share and a few buckets, never for all.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.sharding.shares import Holdings, Share, Transfer, plan_transfers

IN_FLIGHT: Final = 4
"""Buckets that are on their way at a time: enough for Horovod to send one while the next one is packed."""

Shards = list[dict[str, torch.Tensor]]
"""For each bucket, flat tensors by the name that the optimizer gives them: all of the length of one share."""


def empty_shards(outline: Shards, lengths: Sequence[int], share: Share) -> Shards:
    """Return new host memory for a share. `outline`: shards of any length, for names and dtypes."""
    return [
        {name: torch.empty(stop - start, dtype=like.dtype) for name, like in bucket.items()}
        for bucket, (start, stop) in zip(outline, map(share.range, lengths), strict=True)
    ]


def redistribute(
    lengths: Sequence[int],
    *,
    held: Holdings,
    wanted: Sequence[Share | None],
    own: Mapping[Share, Shards],
    outline: Shards,
    into: Shards | None,
    label: str,
) -> None:
    """Give each rank the share that it wants. A collective operation.

    Args:
        lengths: elements of each bucket.
        held: by rank, the shares that it has; the same on every rank.
        wanted: by rank, the share that it gets; None: nothing. The same on every rank.
        own: the content of each share that this rank has, on the host.
        outline: shards of any length, for names and dtypes; the same on every rank.
        into: where this rank's wanted share is written; None if it wants nothing.
        label: name of the operations, for the stall watch.
    """
    plan_of = cache(lambda length: plan_transfers(length, held, wanted))
    pending: deque[Callable[[], None]] = deque()
    for index, length in enumerate(lengths):
        bucket = _BucketTransfer(
            rank=hvd.rank(),
            length=length,
            plan=plan_of(length),
            wanted=wanted[hvd.rank()],
            own={share: shards[index] for share, shards in own.items()},
            names=tuple(sorted(outline[index])),
            into=into[index] if into is not None else {},
        )
        bucket.take_own()
        if bucket.is_sent:
            pending.append(bucket.send(f"hvd_elastic.{label}.{index}"))
        if len(pending) > IN_FLIGHT:
            pending.popleft()()
    for finish in pending:
        finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _BucketTransfer:
    """One bucket on its way, as one rank sees it."""

    rank: int
    length: int
    plan: tuple[Transfer, ...]
    wanted: Share | None
    own: Mapping[Share, Mapping[str, torch.Tensor]]
    names: tuple[str, ...]
    into: Mapping[str, torch.Tensor]

    @property
    def is_sent(self) -> bool:
        """Whether any rank needs something of another: the same answer on every rank."""
        return bool(self.names) and any(each.source != each.target for each in self.plan)

    def take_own(self) -> None:
        """Copy what this rank has itself."""
        for each in self.plan:
            if each.source == each.target == self.rank:
                for name in self.names:
                    self._target(each, name).copy_(self._source(each, name))

    def send(self, label: str) -> Callable[[], None]:
        """Begin to send; what is returned waits, and writes what has come."""
        ranks = range(hvd.size())
        outgoing = [list(self._between(source=self.rank, target=rank)) for rank in ranks]
        pieces = [self._source(each, name) for to in outgoing for each in to for name in self.names]
        packed = (
            torch.cat([piece.view(torch.uint8) for piece in pieces]) if pieces else torch.empty(0, dtype=torch.uint8)
        )
        splits = [sum(self._source(each, name).nbytes for each in to for name in self.names) for to in outgoing]
        handle = hvd.alltoall_async(packed, torch.tensor(splits, dtype=torch.int32), name=label)

        def finish() -> None:
            received, _ = hvd.synchronize(handle)
            at = 0
            for source in ranks:
                for each in self._between(source=source, target=self.rank):
                    for name in self.names:
                        target = self._target(each, name)
                        # Cloned, because a piece may begin at an address to which the dtype cannot be aligned.
                        target.copy_(received[at : at + target.nbytes].clone().view(target.dtype))
                        at += target.nbytes

        return finish

    def _between(self, *, source: int, target: int) -> Iterator[Transfer]:
        if source != target:
            yield from (each for each in self.plan if (each.source, each.target) == (source, target))

    def _source(self, each: Transfer, name: str) -> torch.Tensor:
        first, _ = each.share.range(self.length)
        return self.own[each.share][name][each.start - first : each.stop - first]

    def _target(self, each: Transfer, name: str) -> torch.Tensor:
        assert self.wanted is not None
        first, _ = self.wanted.range(self.length)
        return self.into[name][each.start - first : each.stop - first]
