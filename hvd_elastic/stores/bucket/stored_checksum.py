"""Whether bytes are those of an object, by the CRC that S3 stores beside it.

Facts (Amazon S3 user guide, "Checking object integrity"): S3 stores a checksum with every new object, CRC-64/NVME where
the uploader names no other; boto3 names CRC-32. It is one of all bytes (FULL_OBJECT), or of a multipart upload the
checksum of its parts' checksums and `-N`, the number of parts (COMPOSITE). Unlike an ETag, it says something of objects
that are encrypted with SSE-KMS or SSE-C, too. It costs a tenth of MD5's time or less.

SHA-1 and SHA-256 are not computed: they cannot be put together from ranges that arrive in any order.
"""

import base64
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Crc:
    """A cyclic redundancy check. The numbers are unsigned."""

    length_bytes: int
    update: Callable[[bytes, int], int]
    """Of bytes that follow on those with this CRC; 0 to begin."""
    combine: Callable[[int, int, int], int]
    """Of two runs of bytes one after the other: the CRC of each, and the length of the second."""


def _crc32() -> Crc:
    from awscrt.checksums import combine_crc32

    return Crc(length_bytes=4, update=zlib.crc32, combine=combine_crc32)


def _crc32c() -> Crc:
    from awscrt.checksums import combine_crc32c, crc32c

    return Crc(length_bytes=4, update=crc32c, combine=combine_crc32c)


def _crc64nvme() -> Crc:
    from awscrt.checksums import combine_crc64nvme, crc64nvme

    return Crc(length_bytes=8, update=crc64nvme, combine=combine_crc64nvme)


_FIELDS: Final[Mapping[str, Callable[[], Crc]]] = {
    "x-amz-checksum-crc64nvme": _crc64nvme,
    "x-amz-checksum-crc32c": _crc32c,
    "x-amz-checksum-crc32": _crc32,
}
"""Headers of the answer to a HeadObject. awscrt is imported only where one of them is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChecksum:
    """What S3 has stored of one object."""

    crc: Crc
    value: bytes
    parts: int | None
    """Of how many parts' checksums it is the checksum. None: it is of all bytes."""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "StoredChecksum | None":
        """From the headers of an answer to a HeadObject that asked for it. None: they name none that is known here."""
        for field, crc in _FIELDS.items():
            encoded, _, parts = headers.get(field, "").partition("-")
            if encoded:
                return cls(crc=crc(), value=base64.b64decode(encoded), parts=int(parts) if parts else None)
        return None


class ArrivingChecksum:
    """The checksum of bytes that arrive in any order, range by range. Threads may add at the same time."""

    def __init__(self, ranges: Sequence[range], *, part_bytes: int, stored: StoredChecksum) -> None:
        """`ranges` are all there are, in order, none in two parts."""
        self._ranges, self._part_bytes, self._stored = ranges, part_bytes, stored
        self._found: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, span: range, crc: int) -> bool:
        """Take the CRC of a range that has arrived. Returns, once, that none is left."""
        with self._lock:
            self._found[span.start] = crc
            return len(self._found) == len(self._ranges)

    def is_stored(self) -> bool:
        """Whether the bytes are those of the object. Meaningful when none is left."""
        crc, stored = self._stored.crc, self._stored
        if stored.parts is None:
            return self._joined(self._ranges).to_bytes(crc.length_bytes, "big") == stored.value
        parts: dict[int, list[range]] = {}
        for span in self._ranges:
            parts.setdefault(span.start // self._part_bytes, []).append(span)
        values = b"".join(self._joined(spans).to_bytes(crc.length_bytes, "big") for spans in parts.values())
        whole = crc.update(values, 0).to_bytes(crc.length_bytes, "big")
        return len(parts) == stored.parts and whole == stored.value

    def _joined(self, spans: Sequence[range]) -> int:
        def follow(so_far: int, span: range) -> int:
            return self._stored.crc.combine(so_far, self._found[span.start], len(span))

        return reduce(follow, spans, 0)
