"""Bytes are compared to the digest that a store has of them."""

import hashlib
import zlib
from collections.abc import Callable
from io import BytesIO

import pytest
from awscrt.checksums import crc32c, crc64nvme
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.stores.stored_digest import StoredDigest

DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: crc32c(data).to_bytes(4, "big"),
    "crc64nvme": lambda data: crc64nvme(data).to_bytes(8, "big"),
}


def stored(algorithm: str, data: bytes, part_bytes: int | None) -> StoredDigest:
    """As a store makes it."""
    digest = DIGESTS[algorithm]
    parts = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)] if part_bytes else []
    value = digest(b"".join(map(digest, parts)) if part_bytes else data)
    return StoredDigest(algorithm=algorithm, value=value, part_bytes=part_bytes)


@pytest.mark.parametrize("algorithm", DIGESTS)
@given(st.data(), st.binary(max_size=300), st.none() | st.integers(1, 120))
def test_a_file_has_the_stored_digest_or_was_damaged(
    algorithm: str, drawn: st.DataObject, data: bytes, part_bytes: int | None
) -> None:
    digest = stored(algorithm, data, part_bytes)
    assert digest.is_of(BytesIO(data), len(data))
    if data:
        damaged = bytearray(data)
        damaged[drawn.draw(st.integers(0, len(data) - 1))] ^= 1
        assert not digest.is_of(BytesIO(damaged), len(data))
        assert not digest.is_of(BytesIO(data[:-1]), len(data))


@pytest.mark.parametrize("algorithm", [name for name in DIGESTS if name != "md5"])
@given(st.binary(min_size=1, max_size=300), st.integers(1, 50), st.none() | st.integers(1, 4), st.integers(0, 299))
def test_ranges_join(algorithm: str, data: bytes, range_bytes: int, part_ranges: int | None, lost: int) -> None:
    digest = stored(algorithm, data, part_ranges and part_ranges * range_bytes)
    assert digest.is_joinable
    pieces = [data[start : start + range_bytes] for start in range(0, len(data), range_bytes)]
    assert digest.is_joined((digest.crc(piece, 0), len(piece)) for piece in pieces)
    damaged = bytearray(data)
    damaged[lost % len(data)] ^= 1
    pieces = [bytes(damaged[start : start + range_bytes]) for start in range(0, len(data), range_bytes)]
    assert not digest.is_joined((digest.crc(piece, 0), len(piece)) for piece in pieces)


def test_md5s_do_not_join() -> None:
    assert not stored("md5", b"abc", None).is_joinable
