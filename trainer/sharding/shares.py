"""Which rank has which elements of a divided state, and who sends what to whom. Pure.

A state is a list of buckets, flat tensors. Each is divided over the ranks in rank order, by one of two rules, so that
what a rank has of a bucket follows from its rank and the size of the world alone:

- a number of elements, as Horovod's reducescatter divides a tensor: in parts whose lengths differ by at most one, the
  longer ones first (horovod 0.28.1, `collective_operations.cc`, `ReducescatterOp::ComputeOutputShapeForRank`). So
  `ShardedOptimizer` cuts the elements of its parameters, numbered through.
- `Rows`, as torch's `fully_shard` divides each parameter.
"""

import itertools
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A bucket that is cut between rows, into chunks of equally many: the last ranks may have fewer, or none.

    So torch divides the first dimension of a parameter (`torch.chunk`; torch 2.15, `_chunk_with_empty` in
    `distributed/fsdp/_fully_shard/_fsdp_common.py`).
    """

    count: int
    width: int = 1
    """Elements of a row."""


Length = int | Rows
"""Of a bucket: its elements, or its rows."""


def elements_of(length: Length) -> int:
    """Return how many elements a bucket has."""
    return length if isinstance(length, int) else length.count * length.width


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Share:
    """The part that one rank has in a world of a given size."""

    rank: int
    size: int

    def range(self, length: Length) -> tuple[int, int]:
        """Return the first element of the share in a bucket of this length, and the one after its last."""
        if isinstance(length, Rows):
            most = -(-length.count // self.size)
            first, stop = (min(rank * most, length.count) for rank in (self.rank, self.rank + 1))
            return first * length.width, stop * length.width
        part, longer = divmod(length, self.size)
        start = self.rank * part + min(self.rank, longer)
        return start, start + part + (self.rank < longer)

    def copied(self) -> "Share":
        """Return the share of which the rank of this one keeps a copy: that of the rank across the ring.

        Ranks of one host are neighbours, and so are the hosts that came last. Across the ring, a share and its copy are
        not lost together as long as fewer than half of the ranks that follow each other are. One alone keeps its own.
        """
        return Share(rank=(self.rank - self.size // 2) % self.size, size=self.size)


WHOLE: Final = Share(rank=0, size=1)
"""Everything."""


def shares_of(size: int) -> list[Share]:
    """Return the share of each rank in a world of a size."""
    return [Share(rank=rank, size=size) for rank in range(size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a parameter that is in a bucket."""

    parameter: int
    """Its number in the optimizer, as in a plain `state_dict()`."""
    start: int
    """First element, row-major."""
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Elements of one parameter group that are sent, stepped and stored together."""

    group: int
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        """Number of elements."""
        return sum(piece.stop - piece.start for piece in self.pieces)

    def within(self, start: int, stop: int) -> "list[tuple[int, Piece]]":
        """Return the pieces of a range of the bucket, each with its offset from `start`."""
        found, at = [], 0
        for piece in self.pieces:
            end = at + piece.stop - piece.start
            first, last = max(at, start), min(end, stop)
            if first < last:
                offset = piece.start - at
                cut = Piece(parameter=piece.parameter, start=first + offset, stop=last + offset)
                found.append((first - start, cut))
            at = end
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """What of a parameter decides its bucket."""

    group: int
    kind: Hashable
    """Parameters of different kinds (dtype, device) are not in one bucket."""
    elements: int
    """0 for one that is not trained."""


def buckets_of(parameters: Sequence[ParameterSpec], *, most: int) -> tuple[Bucket, ...]:
    """Divide parameters, in their order, into buckets of `most` elements; the last one of a kind may be shorter."""
    by_kind: dict[tuple[int, Hashable], list[tuple[int, int]]] = {}
    for number, each in enumerate(parameters):
        by_kind.setdefault((each.group, each.kind), []).append((number, each.elements))
    buckets = []
    for (group, _), members in by_kind.items():
        pieces: list[Piece] = []
        room = most
        for number, elements in members:
            at = 0
            while at < elements:
                stop = min(elements, at + room)
                pieces.append(Piece(parameter=number, start=at, stop=stop))
                room, at = room - (stop - at), stop
                if not room:
                    buckets.append(Bucket(group=group, pieces=tuple(pieces)))
                    pieces, room = [], most
        if pieces:
            buckets.append(Bucket(group=group, pieces=tuple(pieces)))
    return tuple(buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Elements of a bucket that a rank gives to another one, or takes from what it has itself."""

    source: int
    target: int
    share: Share
    """That of which the source takes them: a rank may have several."""
    start: int
    """In the bucket."""
    stop: int


Holdings = Sequence[Collection[Share]]
"""By rank, the shares that it has."""


def lost_elements(length: Length, held: Holdings) -> int:
    """Return how many elements of a bucket no rank has."""
    found, at = 0, 0
    for start, stop in sorted(share.range(length) for shares in held for share in shares):
        found += max(0, stop - max(at, start))
        at = max(at, stop)
    return elements_of(length) - found


def plan_transfers(length: Length, held: Holdings, wanted: Sequence[Share | None]) -> tuple[Transfer, ...]:
    """Return how each rank gets its wanted share of a bucket: from itself if it can, else from who sends least.

    Args:
        length: of the bucket.
        held: by rank, the shares that it has. All together have every element (`lost_elements`).
        wanted: by rank, the share that it needs; None: nothing.
    """
    sources = [(rank, share, *share.range(length)) for rank, shares in enumerate(held) for share in sorted(shares)]
    targets = [(rank, *share.range(length)) for rank, share in enumerate(wanted) if share is not None]
    cuts = {cut for _, _, start, stop in sources for cut in (start, stop)}
    cuts |= {cut for _, start, stop in targets for cut in (start, stop)}
    sent = [0] * len(held)
    transfers = []
    for start, stop in itertools.pairwise(sorted(cuts)):
        holders = [(rank, share) for rank, share, first, last in sources if first <= start and stop <= last]
        for target, first, last in targets:
            if first <= start and stop <= last:
                source, share = min(holders, key=lambda each: (each[0] != target, sent[each[0]], each[0]))
                sent[source] += (stop - start) * (source != target)
                transfers.append(Transfer(source=source, target=target, share=share, start=start, stop=stop))
    return tuple(transfers)


def rounds_of(plan: Sequence[Transfer], *, most: int) -> tuple[tuple[Transfer, ...], ...]:
    """Divide what a plan sends between ranks into rounds of at most `most` elements of each transfer.

    All transfers are divided into the same number of parts, so that every rank is busy in every round.
    """
    sent = [each for each in plan if each.source != each.target]
    count = max((-(-(each.stop - each.start) // most) for each in sent), default=0)
    return tuple(tuple(_part(each, part) for each in sent) for part in shares_of(count))


def _part(transfer: Transfer, part: Share) -> Transfer:
    first, last = part.range(transfer.stop - transfer.start)
    return replace(transfer, start=transfer.start + first, stop=transfer.start + last)
