"""The snapshot: one small file that says which hosts may be used, and when the API server last said so.

Its grammar stands in `mpijob.contract.SNAPSHOT_FILE`. It is replaced whole by rename(2), so a reader has the old one or
the new one; a file that is torn all the same, or too old, is an error and never a list.
"""

import errno
import functools
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import SNAPSHOT_FILE, SNAPSHOT_MAX_AGE_SECONDS, HvdElasticError, SnapshotState

_HOST: Final = re.compile(r"host ([A-Za-z0-9._-]+) ([1-9][0-9]*) ([A-Za-z0-9._-]+) ([A-Za-z0-9._-]+)", re.ASCII)
_END: Final = re.compile(r"end ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([a-z]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A worker that may be used. Raises InvalidHostError for fields that would break the snapshot's grammar."""

    address: str
    """IPv4 address, or a name without a colon: Horovod's list is `host:slots`."""
    slots: int
    alias: str
    """`UID-GENERATION`: the pod and the count of its standbys. A replaced process is a new host."""
    pod: str
    line: bytes = field(init=False, repr=False, compare=False)
    """As it stands in the snapshot: made once, written at each change of any host."""

    def __post_init__(self) -> None:
        line = f"host {self.address} {self.slots} {self.alias} {self.pod}"
        if not _HOST.fullmatch(line):
            raise InvalidHostError(f"cannot stand in a snapshot: {line!r}")
        object.__setattr__(self, "line", f"{line}\n".encode("ascii"))

    @property
    def uid(self) -> str:
        """The pod's."""
        return self.alias.rpartition("-")[0]

    @property
    def generation(self) -> int:
        """Of the pod's standby."""
        return int(self.alias.rpartition("-")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the file says."""

    hosts: tuple[Host, ...]
    generation: int
    """Grows by one with each change of the hosts, over restarts of the sidecar as well."""
    uptime_seconds: int
    """The API server's last word, on the clock of /proc/uptime: it does not jump."""
    unix_seconds: int
    """The same moment, for people."""
    state: SnapshotState = SnapshotState.OK


class SnapshotError(HvdElasticError):
    """There is no list that can be trusted. Keep what you have; never read it as an empty list."""


class InvalidHostError(HvdElasticError):
    """A host's field holds what the snapshot's grammar has no place for."""


class MissingSnapshotError(SnapshotError):
    """No snapshot was written so far."""


class TornSnapshotError(SnapshotError):
    """The file does not follow the grammar: it is cut, mixed, or not ours."""


class StaleSnapshotError(SnapshotError):
    """The API server has vouched for the list too long ago, or before the last boot."""


def uptime_seconds() -> int:
    """Whole seconds since boot, from the file that the script reads too."""
    return int(os.pread(_uptime(), 32, 0).partition(b".")[0])


@functools.cache
def _uptime() -> int:
    """Kept open: it is read with each list that is written."""
    return os.open("/proc/uptime", os.O_RDONLY | os.O_CLOEXEC)


def render(snapshot: Snapshot, lines: bytes | None = None) -> bytes:
    """The file's content. `lines`: those of the hosts, where somebody has them together already."""
    if lines is None:
        lines = b"".join([host.line for host in snapshot.hosts])
    count, state = len(snapshot.hosts), snapshot.state
    end = f"end {snapshot.generation} {count} {snapshot.uptime_seconds} {snapshot.unix_seconds} {state}\n"
    return lines + end.encode("ascii")


def parse(text: str) -> Snapshot:
    """Read the file's text. Raises TornSnapshotError for anything but a whole snapshot."""
    if not text.endswith("\n"):
        raise TornSnapshotError("the snapshot is cut: its last line does not end")
    *lines, last = text[:-1].split("\n")
    end = _END.fullmatch(last)
    if not end or end[5] not in set(SnapshotState):
        raise TornSnapshotError(f"the snapshot has no end line but {last!r}")
    if len(lines) != int(end[2]):
        raise TornSnapshotError(f"the snapshot has {len(lines)} hosts where its end line counts {end[2]}")
    return Snapshot(
        hosts=tuple(map(_host, lines)),
        generation=int(end[1]),
        uptime_seconds=int(end[3]),
        unix_seconds=int(end[4]),
        state=SnapshotState(end[5]),
    )


def write_snapshot(folder: Path, snapshot: Snapshot, lines: bytes | None = None) -> None:
    """Replace the snapshot in `folder` whole; `lines` as for `render`. One writer a folder. Raises OSError.

    Not synced to disk: what outlives a crash of the node is worth nothing.
    """
    new = f"{folder}/.{SNAPSHOT_FILE}.new"
    text = render(snapshot, lines)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if os.write(file, text) < len(text):
            raise OSError(errno.ENOSPC, "the snapshot was not written whole", new)
    finally:
        os.close(file)
    os.rename(new, f"{folder}/{SNAPSHOT_FILE}")  # noqa: PTH104


def read_snapshot(
    folder: Path, *, max_age_seconds: float = SNAPSHOT_MAX_AGE_SECONDS, uptime: Callable[[], int] = uptime_seconds
) -> Snapshot:
    """Read the snapshot in `folder`.

    Raises MissingSnapshotError, TornSnapshotError or StaleSnapshotError: SnapshotErrors, no reason to drop hosts.
    `max_age_seconds=math.inf` takes any age, an earlier boot's too.
    """
    path = folder / SNAPSHOT_FILE
    try:
        snapshot = parse(path.read_bytes().decode("ascii", errors="replace"))
    except FileNotFoundError as error:
        raise MissingSnapshotError(f"{os.fspath(path)} is not there: has the discovery sidecar started?") from error
    age = uptime() - snapshot.uptime_seconds
    if max_age_seconds < math.inf and not 0 <= age <= max_age_seconds:
        raise StaleSnapshotError(
            f"{os.fspath(path)} is {age} s old, more than {max_age_seconds} s: does the sidecar reach the API server?"
        )
    return snapshot


def _host(line: str) -> Host:
    match = _HOST.fullmatch(line)
    if not match:
        raise TornSnapshotError(f"not a host line: {line!r}")
    return Host(address=match[1], slots=int(match[2]), alias=match[3], pod=match[4])
