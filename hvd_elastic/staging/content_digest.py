"""Whether bytes are those of an object, by its ETag.

Facts (Amazon S3 API, "Object": ETag; user guide, "Checking object integrity"): the ETag of an object that was put whole
is the MD5 of its bytes; of a multipart upload it is the MD5 of its parts' MD5s and `-N`, the number of parts; of an
object that is encrypted with SSE-KMS or SSE-C it is neither.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
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


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length and (chunk := file.read(min(length, _READ_BYTES))):
        length -= len(chunk)
        yield chunk
