"""Moves elements between the shares of ranks, in host memory: at a resize, at a commit, and to who stores the state.

Each bucket is a few alltoalls of bytes, so that a rank needs room for its own share and a few messages, never for all.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch

from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.sharding.host_shards import Shards
from hvd_elastic.trainer.sharding.shares import Holdings, Length, Share, Transfer, plan_transfers, rounds_of

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
    pending: deque[Callable[[], None]] = deque()
    for index, length in enumerate(lengths):
        bucket = _BucketTransfer(
            world=world,
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
        for number, part in enumerate(rounds_of(plan, most=max(1, MESSAGE_BYTES // element_bytes))):
            pending.append(bucket.send(part, f"hvd_elastic.{label}.{index}.{number}"))
            if len(pending) > IN_FLIGHT:
                pending.popleft()()
    for finish in pending:
        finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _BucketTransfer:
    """One bucket on its way, as one rank sees it."""

    world: TrainingWorld
    rank: int
    length: Length
    wanted: Share | None
    own: Mapping[Share, Mapping[str, torch.Tensor]]
    names: tuple[str, ...]
    into: Mapping[str, torch.Tensor]

    def take_own(self, plan: Sequence[Transfer]) -> None:
        for each in plan:
            if each.source == each.target == self.rank:
                for name in self.names:
                    self._target(each, name).copy_(self._source(each, name))

    def send(self, plan: Sequence[Transfer], label: str) -> Callable[[], None]:
        """Begin to send; what is returned waits, and writes what has come.

        Args:
            plan: transfers between ranks alone.
            label: name of the operation.
        """
        ranks = range(self.world.size())
        outgoing = [[each for each in plan if (each.source, each.target) == (self.rank, rank)] for rank in ranks]
        pieces = [self._source(each, name) for to in outgoing for each in to for name in self.names]
        packed = (
            torch.cat([piece.view(torch.uint8) for piece in pieces]) if pieces else torch.empty(0, dtype=torch.uint8)
        )
        splits = [sum(self._source(each, name).nbytes for each in to for name in self.names) for to in outgoing]
        receive = self.world.alltoall_async(packed, splits=torch.tensor(splits, dtype=torch.int32), name=label)

        def finish() -> None:
            received, at = receive(), 0
            for target in self._targets(plan):
                target.copy_(_as_dtype(received[at : at + target.nbytes], target.dtype))
                at += target.nbytes

        return finish

    def _targets(self, plan: Sequence[Transfer]) -> Iterator[torch.Tensor]:
        """Return where what comes is written, in the order in which it comes."""
        for each in sorted(plan, key=lambda each: each.source):
            if each.target == self.rank:
                yield from (self._target(each, name) for name in self.names)

    def _source(self, each: Transfer, name: str) -> torch.Tensor:
        first, _ = each.share.range(self.length)
        return self.own[each.share][name][each.start - first : each.stop - first]

    def _target(self, each: Transfer, name: str) -> torch.Tensor:
        assert self.wanted is not None
        first, _ = self.wanted.range(self.length)
        return self.into[name][each.start - first : each.stop - first]


def _as_dtype(received: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return bytes as numbers: the same memory, unless it begins where numbers of this type cannot."""
    is_aligned = received.storage_offset() % dtype.itemsize == 0
    return (received if is_aligned else received.clone()).view(dtype)
