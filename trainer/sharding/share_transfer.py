"""Moves elements between the shares of ranks, in host memory: at a resize, at a commit, and to who stores the state.

What is sent are alltoalls of bytes, each of a part of a large bucket, or of several small ones: a rank needs room for
its own share and a few messages, never for all.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch

from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.sharding.host_shards import Shards, empty_shards, on_host
from hvd_elastic.trainer.sharding.sharded_content import ShardedContent
from hvd_elastic.trainer.sharding.shares import (
    WHOLE,
    Holdings,
    Length,
    Share,
    Transfer,
    plan_transfers,
    rounds_of,
    shares_of,
)

IN_FLIGHT: Final = 4
"""Messages that are on their way at a time: enough for Horovod to send one while the next one is packed."""

MESSAGE_BYTES: Final = 8 << 20
"""Most that a rank sends another one at a time. The C library keeps memory of this size when it is freed; larger
blocks come from the kernel each time, which costs more than filling them: of 64 MB, 29 ms beside 3 ms."""


def redistribute(
    lengths: Sequence[Length],
    *,
    held: Holdings,
    wanted: Sequence[Share | None],
    own: Mapping[Share, Shards],
    outline: Shards,
    into: Shards | None,
    label: str,
    world: TrainingWorld = WORLD,
) -> None:
    """Give each rank the share that it wants. A collective operation.

    Args:
        lengths: of each bucket.
        held: by rank, the shares that it has; the same on every rank.
        wanted: by rank, the share that it gets; None: nothing. The same on every rank.
        own: the content of each share that this rank has, on the host.
        outline: shards of any length, for names and dtypes; the same on every rank.
        into: where this rank's wanted share is written; None if it wants nothing.
        label: name of the operations, for the stall watch.
        world: of the ranks.
    """
    plan_of = cache(lambda length: plan_transfers(length, held, wanted))
    mover = _Mover(world=world, label=label)
    for index, length in enumerate(lengths):
        bucket = _BucketTransfer(
            rank=world.rank(),
            length=length,
            wanted=wanted[world.rank()],
            own={share: shards[index] for share, shards in own.items()},
            names=tuple(sorted(outline[index])),
            into=into[index] if into is not None else {},
        )
        if not bucket.names:
            continue
        plan = plan_of(length)
        bucket.take_own(plan)
        element_bytes = sum(each.itemsize for each in outline[index].values())
        for part in rounds_of(plan, most=max(1, MESSAGE_BYTES // element_bytes)):
            mover.add(bucket, part, element_bytes)
    mover.finish()


def gather(
    content: ShardedContent, lengths: Sequence[Length], *, label: str, world: TrainingWorld = WORLD
) -> ShardedContent | None:
    """Return on rank 0 all of what each rank has its share of; None on all others. A collective operation."""
    is_root = world.rank() == 0
    if content.share == WHOLE:
        return content if is_root else None
    shares = shares_of(content.share.size)
    into = empty_shards(content.shards, lengths, WHOLE) if is_root else None
    redistribute(
        lengths,
        held=[[share] for share in shares],
        wanted=[WHOLE, *([None] * (len(shares) - 1))],
        own={content.share: on_host(content.shards)},
        outline=content.shards,
        into=into,
        label=label,
        world=world,
    )
    return None if into is None else ShardedContent(share=WHOLE, shards=into, numbers=content.numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BucketTransfer:
    """One bucket on its way, as one rank sees it."""

    rank: int
    length: Length
    wanted: Share | None
    own: Mapping[Share, Mapping[str, torch.Tensor]]
    names: tuple[str, ...]
    into: Mapping[str, torch.Tensor]

    def take_own(self, plan: Sequence[Transfer]) -> None:
        for each in plan:
            if each.source == each.target == self.rank:
                for source, target in zip(self.sources(each), self.targets(each), strict=True):
                    target.copy_(source)

    def sources(self, each: Transfer) -> list[torch.Tensor]:
        """Return what this rank sends."""
        first, _ = each.share.range(self.length)
        return [self.own[each.share][name][each.start - first : each.stop - first] for name in self.names]

    def targets(self, each: Transfer) -> list[torch.Tensor]:
        """Return where what comes is written."""
        assert self.wanted is not None
        first, _ = self.wanted.range(self.length)
        return [self.into[name][each.start - first : each.stop - first] for name in self.names]


_Part = tuple[_BucketTransfer, Transfer]


class _Mover:
    """Sends parts of buckets between ranks, small ones together: each message waits for all ranks."""

    def __init__(self, *, world: TrainingWorld, label: str) -> None:
        self._world, self._label = world, label
        self._pending: deque[Callable[[], None]] = deque()
        self._parts: list[_Part] = []
        self._bytes = self._messages = 0

    def add(self, bucket: _BucketTransfer, transfers: Sequence[Transfer], element_bytes: int) -> None:
        """Send these transfers between ranks of a bucket. Every rank adds the same, in the same order."""
        most = Counter[tuple[int, int]]()
        for each in transfers:
            most[each.source, each.target] += (each.stop - each.start) * element_bytes
        size = max(most.values())
        if self._parts and self._bytes + size > MESSAGE_BYTES:
            self._begin()
        self._parts += [(bucket, each) for each in transfers]
        self._bytes += size

    def finish(self) -> None:
        """Send the rest, and wait until all has come."""
        if self._parts:
            self._begin()
        while self._pending:
            self._pending.popleft()()

    def _begin(self) -> None:
        self._pending.append(self._send(self._parts))
        self._parts, self._bytes, self._messages = [], 0, self._messages + 1
        if len(self._pending) > IN_FLIGHT:
            self._pending.popleft()()

    def _send(self, parts: Sequence[_Part]) -> Callable[[], None]:
        """Begin to send; what is returned waits, and writes what has come."""
        rank = self._world.rank()
        outgoing = sorted((part for part in parts if part[1].source == rank), key=lambda part: part[1].target)
        incoming = sorted((part for part in parts if part[1].target == rank), key=lambda part: part[1].source)
        splits, pieces = [0] * self._world.size(), []
        for bucket, each in outgoing:
            for source in bucket.sources(each):
                pieces.append(source.view(torch.uint8))
                splits[each.target] += source.nbytes
        packed = torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8)
        name = f"hvd_elastic.{self._label}.{self._messages}"
        receive = self._world.alltoall_async(packed, splits=torch.tensor(splits, dtype=torch.int32), name=name)

        def finish() -> None:
            received, at = receive(), 0
            for bucket, each in incoming:
                for target in bucket.targets(each):
                    target.copy_(_as_dtype(received[at : at + target.nbytes], target.dtype))
                    at += target.nbytes

        return finish


def _as_dtype(received: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return bytes as numbers: the same memory, unless it begins where numbers of this type cannot."""
    is_aligned = received.storage_offset() % dtype.itemsize == 0
    return (received if is_aligned else received.clone()).view(dtype)
