"""Ranks that wait for each other in different collective operations: none of them can ever get on.

A rank that waits says at the launcher's store, again and again, in which operation it stands and what it has begun.
Rank 0, once it waits itself, reads what all say. It is certain of a deadlock if all ranks stood in their operations at
one and the same time, and of each of these operations some rank has not begun it: then nobody will. Whoever computes,
for however long, says nothing, and so nothing is certain.
"""

import json
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.contract import WAITING_SCOPE
from hvd_elastic.trainer.collectives.collective_calls import OF_SET
from hvd_elastic.trainer.elastic.world import rendezvous_client

_LOOKS: Final = 3
"""In a row that must find the same, with a newer word of each rank: when the first ends, all ranks have said it before,
and say it again later."""
_MOST_BEGUN: Final = 8192
_CODE_DIGITS: Final = 8
_RANKS_PER_TURN: Final = 128
"""A larger world speaks and listens more rarely: the launcher's store answers all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRank:
    """A rank that waits."""

    spell: int
    """The number of this wait among all that the rank has done."""
    operation: str
    place: str
    """The line of the script."""
    begun: frozenset[int]
    """The codes of all operations that the rank has asked for, this one among them."""

    @classmethod
    def of(cls, spell: int, operation: str, place: str, begun: Collection[str]) -> "StandingRank | None":
        """None where nothing can be concluded: ranks that have joined, or wait in a set of their own."""
        if len(begun) > _MOST_BEGUN or any(OF_SET in words or words == "join" for words in (*begun, operation)):
            return None
        codes = frozenset(_code(words) for words in (*begun, operation))
        return cls(spell=spell, operation=operation, place=place, begun=codes)


def find_apart(ranks: Sequence[StandingRank]) -> int | None:
    """Return a rank that waits in another operation than rank 0, if none of what they wait for can ever be done."""
    if any(all(_code(each.operation) in other.begun for other in ranks) for each in ranks):
        return None
    return next((rank for rank, each in enumerate(ranks) if each.operation != ranks[0].operation), None)


class DeadlockSearch:
    """What one process says of its wait, and what rank 0 finds."""

    def __init__(self) -> None:
        self._turn = self._count = self._alike = 0
        self._ranks: list[StandingRank] = []
        self._counts: list[int] = []

    def look(self, rank: int, size: int, standing: StandingRank) -> str | None:
        """Say that this rank stands there. Return what is certain; None: nothing, or another rank is to find out."""
        self._turn += 1
        if not rendezvous_client.launched() or self._turn % (1 + size // _RANKS_PER_TURN):
            return None
        self._count += 1
        rendezvous_client.publish(WAITING_SCOPE, str(rank), _word(self._count, standing))
        if rank:
            return None
        counts, ranks = _heard(size)
        if ranks != self._ranks:
            self._alike = 0
        elif not all(now > before for now, before in zip(counts, self._counts, strict=True)):
            return None
        self._ranks, self._counts = ranks, counts
        self._alike += 1
        other = find_apart(ranks) if ranks and self._alike >= _LOOKS else None
        if other is None:
            return None
        return (
            f"rank 0 waits in {ranks[0].operation} at {ranks[0].place}, and rank {other} in {ranks[other].operation} "
            f"at {ranks[other].place}"
        )


def _heard(size: int) -> tuple[list[int], list[StandingRank]]:
    """What all ranks say, with their counts; nothing if one is silent."""
    counts, ranks = [], []
    for rank in range(size):
        said = _parse(rendezvous_client.published(WAITING_SCOPE, str(rank)))
        if said is None:
            return [], []
        counts.append(said[0])
        ranks.append(said[1])
    return counts, ranks


def _word(count: int, standing: StandingRank) -> str:
    begun = "".join(f"{code:0{_CODE_DIGITS}x}" for code in sorted(standing.begun))
    return json.dumps([count, standing.spell, standing.operation, standing.place, begun])


def _parse(text: str | None) -> tuple[int, StandingRank] | None:
    try:
        match json.loads(text or ""):
            case [int(count), int(spell), str(operation), str(place), str(begun)]:
                starts = range(0, len(begun), _CODE_DIGITS)
                codes = frozenset(int(begun[start : start + _CODE_DIGITS], 16) for start in starts)
                return count, StandingRank(spell=spell, operation=operation, place=place, begun=codes)
    except (ValueError, RecursionError):
        pass
    return None


def _code(words: str) -> int:
    """Two operations of one code make a deadlock less certain, never more."""
    return zlib.crc32(words.encode(errors="replace"))
