"""How the processes of one world find each other: each tells once where it listens, and is told where the others do.

What they send and get is described in `gloo_meeting.h` (the patch `gloo-meeting`). In Horovod's own way each asks a
store for each other one, again and again, in six contexts.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.mpijob.contract import JoinAnswer

_HEADER: Final = struct.Struct("!4sBBBB")
"""`HVDM`, version, length of an address, number of contexts, whether this is the answer to all of it."""

_MAGIC: Final = b"HVDM"
_VERSION: Final = 1
_PLACE: Final = struct.Struct("!II")
"""Rank and size in a context. So many u16 follow."""

_CONTEXTS: Final = 3
"""All processes; those of a host; those of a local rank."""

_ADDRESS_BYTES: Final = frozenset({4, 20})
"""An in_addr; an in6_addr and a scope id."""


class MeetingError(ValueError):
    """What a process has sent is not of this world, or of another form."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What one process has sent."""

    address: bytes
    ports: tuple[bytes, ...]
    """For each context, a u16 for each of its processes."""


class Meeting:
    """The exchange of one world. Its members are those of `slots`, by rank."""

    def __init__(self, number: int, slots: Iterable[Slot] = ()) -> None:
        self.number = number
        self._slots = tuple(slots)
        self._unable = {slot.key for slot in self._slots}
        self._takes_place: bool | None = None
        self._told: dict[int, _Told] = {}
        self._members: defaultdict[tuple[int, object], list[int]] = defaultdict(list)
        """Ranks of those that are in a context together, in the order of the context."""
        for slot in self._slots:
            for group in _groups(slot):
                self._members[group].append(slot.rank)
        self._joined: dict[tuple[int, object], tuple[bytes, memoryview]] = {}

    def note_able(self, key: SlotKey) -> None:
        """Note that a process has come to the barrier, and that its Horovod knows how to meet."""
        self._unable.discard(key)

    def go(self) -> str:
        """The answer to those whom the barrier lets pass: all members get the same one.

        A process whose Horovod does not know how to meet finds the others in the store, and so must they.
        """
        if self._takes_place is None:
            self._takes_place = not self._unable
        return f"{JoinAnswer.GO} {self.number}" if self._takes_place else JoinAnswer.GO

    @property
    def is_complete(self) -> bool:
        """Whether all have told where they listen."""
        return len(self._told) == len(self._slots)

    def take(self, request: bytes) -> int:
        """Take what one process sends; the last word counts. Returns its rank. Raises MeetingError."""
        try:
            magic, version, length, contexts, _ = _HEADER.unpack_from(request)
            if (magic, version, contexts) != (_MAGIC, _VERSION, _CONTEXTS) or length not in _ADDRESS_BYTES:
                raise MeetingError("no message to a meeting")
            at = _HEADER.size + length
            rank = int(_PLACE.unpack_from(request, at)[0])
            if rank >= len(self._slots):
                raise MeetingError(f"rank {rank} of a world of {len(self._slots)}")
            ports = []
            for place in _places(self._slots[rank]):
                if _PLACE.unpack_from(request, at) != place:
                    raise MeetingError(f"another place than that of rank {rank}")
                begin, at = at + _PLACE.size, at + _PLACE.size + 2 * place[1]
                ports.append(request[begin:at])
        except struct.error as error:
            raise MeetingError("a message that is too short") from error
        if len(request) != at:
            raise MeetingError(f"a message of {len(request)} bytes, where {at} were expected")
        told = _Told(request[_HEADER.size : _HEADER.size + length], tuple(ports))
        if len(next(iter(self._told.values()), told).address) != length:
            raise MeetingError(f"rank {rank} listens at another kind of address (IPv4, IPv6) than others")
        self._told[rank] = told
        return rank

    def answer(self, rank: int) -> bytes:
        """What a process gets that has told: where each other one listens for it, or that it has to ask again."""
        length = len(self._told[rank].address)
        parts = [_HEADER.pack(_MAGIC, _VERSION, length, _CONTEXTS, self.is_complete)]
        if self.is_complete:
            slot = self._slots[rank]
            for group, (own_rank, size) in zip(_groups(slot), _places(slot), strict=True):
                addresses, ports = self._joined_words(group)
                parts += addresses, ports[own_rank::size].tobytes()
        return b"".join(parts)

    def _joined_words(self, group: tuple[int, object]) -> tuple[bytes, memoryview]:
        """Addresses and ports of all in a context: one for each pair, as an array of size * size."""
        joined = self._joined.get(group)
        if joined is None:
            told = [self._told[rank] for rank in self._members[group]]
            ports = memoryview(b"".join(each.ports[group[0]] for each in told)).cast("H")
            joined = self._joined[group] = b"".join(each.address for each in told), ports
        return joined


def _places(slot: Slot) -> tuple[tuple[int, int], ...]:
    """Its rank and the size, in each context."""
    return (slot.rank, slot.size), (slot.local_rank, slot.local_size), (slot.cross_rank, slot.cross_size)


def _groups(slot: Slot) -> tuple[tuple[int, object], ...]:
    """With whom it is together, in each context."""
    return (0, None), (1, slot.host.alias), (2, slot.local_rank)
