"""A large object that is arriving: a file that several threads write at once, and the journal of its finished ranges.

The file has its final size long before it is whole, so the journal says which ranges are: a line for each, with the
CRC of its bytes, CRC-32 unless the store has another one of the object. The next copier believes a line only if the
file still has these bytes: after the death of a node the journal may be there, and what was written before it not. So
nothing is synced but the whole file, at its end.

The name follows from the object's version: what was begun of an older one is not found, and removed.
"""

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.stores.object_requests import ListedObject
from hvd_elastic.stores.stored_digest import StoredDigest

_JOURNAL: Final = ".ranges"
_Span = tuple[int, int]
"""First byte of a range, and the one behind it."""


class PartialFile:
    """One object whose ranges arrive in any order. Threads may call its methods at the same time."""

    def __init__(self, folder: Path, one: ListedObject, *, range_bytes: int, digest: StoredDigest | None) -> None:
        """Open what an earlier copier left in `folder`, or begin. `digest`: what the store says of all bytes."""
        self.object, self.digest = one, digest
        crcs = digest if digest and digest.is_joinable else None
        parts = _spans(0, one.size_bytes, (crcs and crcs.part_bytes) or one.size_bytes)
        self.ranges = [span for part in parts for span in _spans(*part, range_bytes)]
        """What is read at once."""
        self.path, self._journal_path = (folder / name for name in partial_names(one))
        self._finished = dict(_read_journal(self._journal_path))
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._file, one.size_bytes)
        self._journal = os.open(self._journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._journal).st_size:
            os.write(self._journal, b"\n")  # the last line may be a part of one
        self._crc = crcs.crc if crcs else zlib.crc32
        self._missing = len(self.ranges)
        self._lock = threading.Lock()

    def arrive(self, span: _Span, pieces: Iterable[bytes]) -> bool:
        """Write a range as it arrives, unless it is there. Call it once for each; returns whether all are there now.

        An error in `pieces`, which are not asked for if it is there, leaves it unfinished.
        """
        if not self._is_there(span):
            at, crc = span[0], 0
            for piece in pieces:
                crc = self._crc(piece, crc)
                at = write_all(self._file, piece, at)
            self._finished[span] = crc
            os.write(self._journal, (json.dumps([*span, crc]) + "\n").encode())
        with self._lock:
            self._missing -= 1
            return not self._missing

    def _is_there(self, span: _Span) -> bool:
        known, crc, at = self._finished.get(span), 0, span[0]
        while known is not None and (piece := os.pread(self._file, min(span[1] - at, 1 << 20), at)):
            crc, at = self._crc(piece, crc), at + len(piece)
        return at == span[1] and crc == known

    def is_whole(self) -> bool:
        """Whether its bytes are those that the store has. Meaningful once all ranges have arrived."""
        assert self.digest
        if self.digest.is_joinable:
            return self.digest.is_joined((self._finished[span], span[1] - span[0]) for span in self.ranges)
        with self.path.open("rb") as file:
            return self.digest.is_of(file, self.object.size_bytes)

    def sync(self) -> None:
        """Have the file's bytes outlive the machine."""
        os.fsync(self._file)

    def forget(self) -> None:
        """Remove file and journal: the file was renamed, or its bytes are wrong."""
        self.path.unlink(missing_ok=True)
        self._journal_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close both files."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                os.close(self._journal)
            self._file = self._journal = -1


def write_all(file: int, data: bytes, at: int) -> int:
    """Write bytes at an offset of an open file; returns the offset behind them."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written
    return at


def _spans(start: int, stop: int, length: int) -> Sequence[_Span]:
    return [(at, min(at + length, stop)) for at in range(start, stop, length)]


def partial_names(one: ListedObject) -> tuple[str, str]:
    """The names of an object's partial file and its journal."""
    name = hashlib.sha256(f"{one.key}\0{one.size_bytes}\0{one.version}".encode()).hexdigest()
    return name, name + _JOURNAL


def _read_journal(path: Path) -> Iterator[tuple[_Span, int]]:
    """CRCs by range. Lines that are not whole are skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            start, stop, crc = json.loads(line)
        except (ValueError, TypeError):
            continue
        yield (start, stop), crc
