"""What a store says of an object's bytes, and whether bytes are those.

Facts. S3: the ETag of an object that was put whole is the MD5 of its bytes, that of an upload in parts the MD5 of its
parts' MD5s and `-N`, the number of parts; with SSE-KMS or SSE-C it is neither ("Object": ETag). A CRC is stored with
every new object, of all bytes or in the same way of its parts ("Checking object integrity"). GCS has a CRC32C of every
object ("Hashes and ETags"); Azure the MD5 that the uploader gave, if he did ("Get Blob").

Digests find damage; they are no protection against an attacker. SHA-1 and SHA-256, which S3 may have, are not compared.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import BinaryIO, Final

CRCS: Final = ("crc64nvme", "crc32c", "crc32")
"""As S3 and awscrt call them."""
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDigest:
    """Of one object."""

    algorithm: str
    """`md5`, or one of CRCS."""
    value: bytes
    part_bytes: int | None = None
    """The digest is that of the digests of parts, all of this length but the last. None: it is of all bytes."""

    @property
    def is_joinable(self) -> bool:
        """Whether it follows from the digests of ranges that cross no part's end."""
        return self.algorithm in CRCS

    @property
    def crc(self) -> Callable[[bytes, int], int]:
        """Of bytes that follow on those with this CRC; 0 to begin."""
        from awscrt import checksums

        found: Callable[[bytes, int], int] = getattr(checksums, self.algorithm)
        return found

    def is_joined(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """Whether it is that of all ranges, of which CRC and length are given, in order."""
        from awscrt import checksums

        combine = getattr(checksums, f"combine_{self.algorithm}")
        parts, length = [0], 0
        for crc, size_bytes in ranges:
            if self.part_bytes and length == self.part_bytes:
                parts.append(0)
                length = 0
            parts[-1], length = combine(parts[-1], crc, size_bytes), length + size_bytes
        return self._is_of_parts([part.to_bytes(len(self.value), "big") for part in parts])

    def is_of(self, file: BinaryIO, size_bytes: int) -> bool:
        """Whether it is that of the file's bytes from where it stands."""
        length = self.part_bytes or size_bytes or 1
        starts = range(0, size_bytes, length)
        return self._is_of_parts([self._digest(_pieces(file, min(length, size_bytes - start))) for start in starts])

    def _is_of_parts(self, digests: Sequence[bytes]) -> bool:
        return self.value == (self._digest(digests) if self.part_bytes or not digests else digests[0])

    def _digest(self, pieces: Iterable[bytes]) -> bytes:
        if self.algorithm == "md5":
            digest = hashlib.md5(usedforsecurity=False)
            for piece in pieces:
                digest.update(piece)
            return digest.digest()
        crc = self.crc
        return reduce(lambda so_far, piece: crc(piece, so_far), pieces, 0).to_bytes(len(self.value), "big")


def _pieces(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length and (piece := file.read(min(length, _PIECE_BYTES))):
        length -= len(piece)
        yield piece
