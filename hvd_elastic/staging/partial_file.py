"""A large object that is arriving: a file that several threads write at once, and the journal of its finished ranges.

The file has its final size long before it is whole, so the journal says which ranges are: a line for each, with the
CRC of its bytes, CRC-32 unless S3 has stored another one of the object. The next copier believes a line only if the
file still has these bytes: after the death of a node the journal may be there, and what was written before it not. So
nothing is synced but the whole file, at its end.

The name follows from the object's version: what was begun of an older one is not found, and removed.
"""

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.staging.content_digest import ArrivingDigest
from hvd_elastic.stores.bucket.listed_page import SourceObject
from hvd_elastic.stores.bucket.stored_checksum import ArrivingChecksum, StoredChecksum

_JOURNAL: Final = ".ranges"


class PartialFile:
    """One object whose ranges arrive in any order. Threads may call its methods at the same time."""

    def __init__(
        self,
        folder: Path,
        one: SourceObject,
        *,
        range_bytes: int,
        part_bytes: int | None,
        stored: StoredChecksum | None = None,
    ) -> None:
        """Open what an earlier copier left in `folder`, or begin.

        Args:
            folder: of partial files.
            one: the object.
            range_bytes: length of a range, but for those at the end of a part.
            part_bytes: length of the parts of a multipart upload; None: the object was put whole, or its parts do not
                matter because `stored` is of all bytes.
            stored: what its bytes are compared to; None: its ETag.
        """
        self.object = one
        self.in_parts = part_bytes is not None
        self._part_bytes = part_bytes or one.size_bytes
        self.ranges = _ranges(one.size_bytes, part_bytes=self._part_bytes, range_bytes=range_bytes)
        """What is read at once. No range is in two parts, so that each part's digest is its own."""
        self.path, journal = (folder / name for name in partial_names(one))
        self._finished = _read_journal(journal)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._file, one.size_bytes)
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._journal_path = journal
        if os.fstat(self._journal).st_size:
            os.write(self._journal, b"\n")  # the last line may be a part of one
        self._crc: Callable[[bytes, int], int] = stored.crc.update if stored else zlib.crc32
        self.has_checksum = stored is not None
        """Whether the bytes are compared to a checksum, not to the ETag."""
        self._checksum = stored and ArrivingChecksum(self.ranges, part_bytes=self._part_bytes, stored=stored)
        self._digest = ArrivingDigest(self.ranges, part_bytes=self._part_bytes, read=self._read)
        self._lock = threading.Lock()

    def kept(self, span: range) -> bytes | None:
        """The bytes of a range that an earlier copier finished. None: it did not, or they are lost."""
        known = self._finished.get((span.start, span.stop))
        if known is None:
            return None
        data = self._read(span)
        return data if len(data) == len(span) and self._crc(data, 0) == known else None

    def write(self, span: range, data: bytes) -> None:
        """Write a range, and note that it is finished."""
        self.write_pieces(span, [data])

    def write_pieces(self, span: range, pieces: Iterable[bytes]) -> None:
        """Write a range as it arrives, and note that it is finished. An error in `pieces` leaves it unfinished."""
        at, crc = span.start, 0
        for piece in pieces:
            crc = self._crc(piece, crc)
            view = memoryview(piece)
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written
        self._finished[span.start, span.stop] = crc
        os.write(self._journal, (json.dumps([span.start, span.stop, crc]) + "\n").encode())

    def arrived(self, span: range, data: bytes | None = None) -> bool:
        """Note that a range is on the file. Returns whether all are: true for one call.

        `data` are its bytes. They may be left out where a stored checksum is compared.
        """
        if self._checksum:
            return self._checksum.add(span, self._finished[span.start, span.stop])
        return self._digest.add(span, self._read(span) if data is None else data)

    @property
    def is_verified(self) -> bool:
        """Whether the bytes are known to be the object's. Meaningful at the end."""
        return self._checksum.is_stored() if self._checksum else self.etag == self.object.etag

    @property
    def etag(self) -> str:
        """What `arrived` has seen, as the ETag of an upload in these parts, or of one whole. Meaningful at the end.

        Where a stored checksum is compared, it is not computed.
        """
        return self._digest.etag(in_parts=self.in_parts)

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

    def _read(self, span: range) -> bytes:
        pieces, at = [], span.start
        while at < span.stop and (piece := os.pread(self._file, span.stop - at, at)):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]


def _ranges(size_bytes: int, *, part_bytes: int, range_bytes: int) -> Sequence[range]:
    ends = ((start, min(start + part_bytes, size_bytes)) for start in range(0, size_bytes, part_bytes))
    return [
        range(first, min(first + range_bytes, end)) for start, end in ends for first in range(start, end, range_bytes)
    ]


def partial_names(one: SourceObject) -> tuple[str, str]:
    """The names of an object's partial file and its journal."""
    name = hashlib.sha256(f"{one.key}\0{one.size_bytes}\0{one.etag}".encode()).hexdigest()
    return name, name + _JOURNAL


def _read_journal(path: Path) -> dict[tuple[int, int], int]:
    """CRC by the first byte of a range and the one behind it. Lines that are not whole are skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    return dict(_parsed(lines))


def _parsed(lines: list[str]) -> Iterator[tuple[tuple[int, int], int]]:
    for line in lines:
        try:
            start, stop, crc = json.loads(line)
        except (ValueError, TypeError):
            continue
        yield (start, stop), crc
