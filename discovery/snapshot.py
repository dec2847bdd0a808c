"""The snapshot: one small file that says which hosts may be used, and when the API server last confirmed it.

`mpijob.contract.SNAPSHOT_FILE` gives its grammar. It is replaced whole by rename(2), so a reader gets the old one or
the new one. A file that is torn all the same, or too old, is an error and never a list.
"""

import functools
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import SNAPSHOT_FILE, SNAPSHOT_MAX_AGE_SECONDS, HvdElasticError, SnapshotState
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.system.plain_words import count_words

_HOST: Final = re.compile(r"host ([A-Za-z0-9._:-]+) ([1-9][0-9]*) ([A-Za-z0-9._-]+) ([A-Za-z0-9._-]+)", re.ASCII)
_END: Final = re.compile(r"end ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([a-z]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A place for processes. Two hosts are the same only if alias, address, slots and pod are all equal."""

    alias: str
    """Horovod's name for it. In a cluster `UID-GENERATION`, the pod and the count of its standbys: a replaced process
    is a new host."""
    address: str
    """IPv4 or IPv6 address, or a name. `USER@` may be in front of it. Never an identity: addresses are reused."""
    slots: int
    """Processes that fit, at least 1."""
    pod: str = ""
    """The pod's name, or the local host's folder; empty for a host that is no pod."""
    _line: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        line = f"host {self.address} {self.slots} {self.alias} {self.pod}"
        object.__setattr__(self, "_line", f"{line}\n".encode("ascii") if _HOST.fullmatch(line) else b"")

    @property
    def line(self) -> bytes:
        """Its line in the snapshot. Raises InvalidHostError without a pod, or with a character that is not allowed."""
        if not self._line:
            raise InvalidHostError(f"not allowed in a snapshot: {self}")
        return self._line

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.pod or self.alias

    @property
    def name(self) -> str:
        """What horovodrun calls it: its address, unless that is IPv6. Horovod's list is `host:slots`.

        The name that stands for an IPv6 address is that of one pod alone, which its successor does not get.
        """
        return f"{self.pod}.{self.uid}" if ":" in self.address else self.address

    @property
    def uid(self) -> str:
        """The pod's UID, from the alias."""
        return self.alias.rpartition("-")[0]

    @property
    def generation(self) -> int:
        """The generation of the pod's standby, from the alias."""
        return int(self.alias.rpartition("-")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the file says."""

    hosts: tuple[Host, ...]
    generation: int
    """Grows by one with each change of the hosts, across restarts of the sidecar too."""
    uptime_seconds: int
    """When the API server last confirmed the list, on the clock of /proc/uptime, which does not jump."""
    unix_seconds: int
    """The same moment, for people."""
    state: SnapshotState = SnapshotState.OK


class SnapshotError(HvdElasticError):
    """There is no list that can be trusted. Keep what you have; never read it as an empty list."""


class InvalidHostError(HvdElasticError):
    """A host's field holds something that the snapshot's grammar does not allow."""


class MissingSnapshotError(SnapshotError):
    """No snapshot has been written yet."""


class TornSnapshotError(SnapshotError):
    """The file does not follow the grammar: it is cut, mixed, or not ours."""


class StaleSnapshotError(SnapshotError):
    """The API server last confirmed the list too long ago, or before the last boot."""


def uptime_seconds() -> int:
    """Whole seconds since boot, from the file that the host script reads too."""
    return int(os.pread(_uptime(), 32, 0).partition(b".")[0])


@functools.cache
def _uptime() -> int:
    """Kept open, because each write of a list reads it."""
    return os.open("/proc/uptime", os.O_RDONLY | os.O_CLOEXEC)


def render(snapshot: Snapshot, lines: bytes | None = None) -> bytes:
    """The file's content. `lines`: the hosts' lines, if the caller keeps them joined. Raises InvalidHostError."""
    if lines is None:
        lines = b"".join([host.line for host in snapshot.hosts])
    count, state = len(snapshot.hosts), snapshot.state
    end = f"end {snapshot.generation} {count} {snapshot.uptime_seconds} {snapshot.unix_seconds} {state}\n"
    return lines + end.encode("ascii")


def parse(text: str) -> Snapshot:
    """Read the file's text. Raises TornSnapshotError unless it is a whole snapshot."""
    if not text.endswith("\n"):
        raise TornSnapshotError("the snapshot is cut: its last line is incomplete")
    *lines, last = text[:-1].split("\n")
    end = _END.fullmatch(last)
    if not end or end[5] not in set(SnapshotState):
        raise TornSnapshotError(f"the snapshot's last line is not an end line: {last!r}")
    if len(lines) != int(end[2]):
        raise TornSnapshotError(f"the snapshot has {count_words(len(lines), 'host')}, but its end line says {end[2]}")
    return Snapshot(
        hosts=tuple(map(_parse_host, lines)),
        generation=int(end[1]),
        uptime_seconds=int(end[3]),
        unix_seconds=int(end[4]),
        state=SnapshotState(end[5]),
    )


def write_snapshot(folder: Path, snapshot: Snapshot, lines: bytes | None = None) -> None:
    """Replace the snapshot in `folder` whole; `lines` as for `render`. Raises OSError and InvalidHostError.

    Not synced to disk: after a crash of the node the list is worthless anyway.
    """
    replace_file(folder / SNAPSHOT_FILE, render(snapshot, lines))


def read_snapshot(
    folder: Path, *, max_age_seconds: float = SNAPSHOT_MAX_AGE_SECONDS, uptime: Callable[[], int] = uptime_seconds
) -> Snapshot:
    """Read the snapshot in `folder`.

    Raises MissingSnapshotError, TornSnapshotError or StaleSnapshotError. None of them is a reason to drop hosts.
    `max_age_seconds=math.inf` accepts any age, even from before the last boot.
    """
    path = folder / SNAPSHOT_FILE
    try:
        snapshot = parse(path.read_bytes().decode("ascii", errors="replace"))
    except FileNotFoundError as error:
        raise MissingSnapshotError(f"{os.fspath(path)} does not exist: has the discovery sidecar started?") from error
    age = uptime() - snapshot.uptime_seconds
    if max_age_seconds < math.inf and not 0 <= age <= max_age_seconds:
        raise StaleSnapshotError(
            f"{os.fspath(path)} is {age} s old, more than {max_age_seconds} s: does the sidecar reach the API server?"
        )
    return snapshot


@functools.lru_cache(maxsize=8192)
def _parse_host(line: str) -> Host:
    """Cached, because each second most lines are those of the second before."""
    match = _HOST.fullmatch(line)
    if not match:
        raise TornSnapshotError(f"not a host line: {line!r}")
    return Host(address=match[1], slots=int(match[2]), alias=match[3], pod=match[4])
