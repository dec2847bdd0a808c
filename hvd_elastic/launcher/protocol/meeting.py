"""How the processes of one world find each other: each tells once where it listens, and is told where the others do.

What they send and get is described in `gloo_meeting.h` (the patch `gloo-meeting`). In Horovod's own way each asks a
store for each other one, again and again, in six contexts.
"""

import struct
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from hvd_elastic.launcher.core.slot_placement import Slot, SlotKey
from hvd_elastic.mpijob.contract import JoinAnswer

_HEADER: Final = struct.Struct("!4sBBBB")
"""`HVDM`, version, length of what a process tells, 0, whether this is the answer to all of it."""

_MAGIC: Final = b"HVDM"
_VERSION: Final = 2
_PLACES: Final = struct.Struct("!6I")
"""`Slot.places`."""

_PLACE: Final = struct.Struct("!II")
"""The number of a process's host, and its local rank."""

_TOLD_BYTES: Final = frozenset({4 + 2 + 8, 20 + 2 + 8})
"""An in_addr, or an in6_addr and a scope id; a port; a word that who connects has to say."""


class MeetingError(ValueError):
    """What a process has sent is not of this world, or of another form."""


class Meeting:
    """The exchange of one world. Its members are those of `slots`, by rank."""

    def __init__(self, number: int, slots: Iterable[Slot] = ()) -> None:
        self.number = number
        self._slots = tuple(slots)
        self._unable = {slot.key for slot in self._slots}
        self._takes_place: bool | None = None
        self._told: dict[int, bytes] = {}

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

    def take(self, request: bytes) -> None:
        """Take what one process sends. Raises MeetingError.

        Once all have told, nothing changes: all get the same answer.
        """
        if len(request) < _HEADER.size + _PLACES.size:
            raise MeetingError("a message that is too short")
        magic, version, length, *_ = _HEADER.unpack_from(request)
        if (magic, version) != (_MAGIC, _VERSION) or length not in _TOLD_BYTES:
            raise MeetingError("no message to a meeting")
        places = _PLACES.unpack_from(request, _HEADER.size)
        rank = int(places[0])
        if rank >= len(self._slots):
            raise MeetingError(f"rank {rank} of a world of {len(self._slots)}")
        if places != self._slots[rank].places:
            raise MeetingError(f"another place than that of rank {rank}")
        told = request[_HEADER.size + _PLACES.size :]
        if len(told) != length:
            raise MeetingError(f"{len(told)} bytes of what a process tells, where {length} were expected")
        if len(next(iter(self._told.values()), told)) != length:
            raise MeetingError(f"rank {rank} listens at another kind of address (IPv4, IPv6) than others")
        if not self.is_complete:
            self._told[rank] = told

    def answer(self) -> bytes:
        """What those get that have told: where each process listens, or that they have to ask again."""
        return self._complete_answer if self.is_complete else self._header(is_complete=False)

    @cached_property
    def _complete_answer(self) -> bytes:
        hosts: dict[str, int] = {}
        parts = [self._header(is_complete=True)]
        for slot in self._slots:
            host = hosts.setdefault(slot.host.alias, len(hosts))
            parts += _PLACE.pack(host, slot.local_rank), self._told[slot.rank]
        return b"".join(parts)

    def _header(self, *, is_complete: bool) -> bytes:
        length = len(next(iter(self._told.values())))
        return _HEADER.pack(_MAGIC, _VERSION, length, 0, is_complete)
