"""Whether bytes are those of an object, by its ETag.

Facts (Amazon S3 API, "Object": ETag; user guide, "Checking object integrity"): the ETag of an object that was put whole
is the MD5 of its bytes; of a multipart upload it is the MD5 of its parts' MD5s and `-N`, the number of parts; of an
object that is encrypted with SSE-KMS or SSE-C it is neither.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final

_WHOLE: Final = re.compile(r"[0-9a-f]{32}")
_IN_PARTS: Final = re.compile(r"[0-9a-f]{32}-([0-9]+)")
_READ_BYTES: Final = 1 << 20


def md5_of(chunks: Iterable[bytes]) -> str:
    """MD5 of bytes, in hex. It finds damage; it is no protection against an attacker."""
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def number_of_parts(etag: str) -> int | None:
    """Of a multipart upload. None: the object was put whole, or the ETag has another form."""
    found = _IN_PARTS.fullmatch(etag)
    return int(found[1]) if found else None


def is_md5(etag: str) -> bool:
    """Whether the ETag has the form of an MD5."""
    return _WHOLE.fullmatch(etag) is not None


def etag_in_parts(file: BinaryIO, *, size_bytes: int, part_bytes: int) -> str:
    """The ETag that an upload of the file in parts of `part_bytes` gets."""
    digests = hashlib.md5(usedforsecurity=False)
    count = -(-size_bytes // part_bytes)
    for _ in range(count):
        digests.update(bytes.fromhex(md5_of(_chunks(file, part_bytes))))
    return f"{digests.hexdigest()}-{count}"


def etag_whole(file: BinaryIO) -> str:
    """The ETag that an upload of the file in one piece gets."""
    return md5_of(iter(lambda: file.read(_READ_BYTES), b""))


class ArrivingDigest:
    """The ETag of bytes that arrive in any order, range by range. Threads may add at the same time.

    MD5 takes bytes in their order. A range that follows on what its part's MD5 has seen is taken from memory; one that
    came too soon is read again, by the thread that brings the one before it. So the digest is ready with the last byte.
    """

    def __init__(self, ranges: Sequence[range], *, part_bytes: int, read: Callable[[range], bytes]) -> None:
        """`ranges` are all there are, none in two parts; `read` reads one again that has arrived."""
        self._read, self._part_bytes = read, part_bytes
        parts = sorted({span.start // part_bytes for span in ranges})
        self._parts = {part: hashlib.md5(usedforsecurity=False) for part in parts}
        self._next = {part: part * part_bytes for part in parts}
        self._waiting: dict[int, range] = {}
        self._left = len(ranges)
        self._lock = threading.Lock()

    def add(self, span: range, data: bytes) -> bool:
        """Take a range that has arrived, and those that waited for it. Returns, once, that none is left."""
        part = span.start // self._part_bytes
        with self._lock:
            if self._next[part] != span.start:
                self._waiting[span.start] = span
                return False
        while True:
            self._parts[part].update(data)
            with self._lock:
                self._left -= 1
                self._next[part] = span.stop
                follows = self._waiting.pop(span.stop, None) if span.stop < (part + 1) * self._part_bytes else None
                if follows is None:
                    return self._left == 0
            span = follows
            data = self._read(span)

    def etag(self, *, in_parts: bool) -> str:
        """The ETag of what was added."""
        if not in_parts:
            return next(iter(self._parts.values())).hexdigest()
        whole = md5_of(digest.digest() for digest in self._parts.values())
        return f"{whole}-{len(self._parts)}"


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length and (chunk := file.read(min(length, _READ_BYTES))):
        length -= len(chunk)
        yield chunk
