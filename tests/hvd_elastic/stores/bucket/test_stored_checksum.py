"""Bytes are compared to the CRC that S3 has stored, in whatever order they arrive."""

import base64
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c, crc64nvme
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.staging import stage
from hvd_elastic.staging.stage_errors import DigestError
from hvd_elastic.stores.bucket.listed_page import SourceObject
from hvd_elastic.stores.bucket.object_source import ObjectSource
from hvd_elastic.stores.bucket.signed_reads import PIECE_BYTES, SignedReads
from hvd_elastic.stores.bucket.stored_checksum import ArrivingChecksum, StoredChecksum
from testbed.s3_server import Put

Update = Callable[[bytes, int], int]
KINDS: dict[str, tuple[Update, int]] = {
    "x-amz-checksum-crc32": (zlib.crc32, 4),
    "x-amz-checksum-crc32c": (crc32c, 4),
    "x-amz-checksum-crc64nvme": (crc64nvme, 8),
}
LARGE = 3 * PIECE_BYTES + 17


def answer_for(kind: str, data: bytes, part_bytes: int | None) -> dict[str, str]:
    """What S3 answers to a HeadObject."""
    update, length = KINDS[kind]
    if part_bytes is None:
        return {kind: base64.b64encode(update(data, 0).to_bytes(length, "big")).decode()}
    parts = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
    values = b"".join(update(part, 0).to_bytes(length, "big") for part in parts)
    return {kind: f"{base64.b64encode(update(values, 0).to_bytes(length, 'big')).decode()}-{len(parts)}"}


@given(
    st.data(), st.binary(min_size=1, max_size=300), st.integers(1, 50), st.none() | st.integers(1, 120),
    st.sampled_from(sorted(KINDS)),
)  # fmt: skip
def test_ranges_in_any_order_have_the_stored_checksum(
    drawn: st.DataObject, data: bytes, range_bytes: int, part_bytes: int | None, kind: str
) -> None:
    stored = StoredChecksum.of(answer_for(kind, data, part_bytes))
    assert stored is not None
    length = part_bytes or len(data)
    parts = (range(start, min(start + length, len(data))) for start in range(0, len(data), length))
    spans = [part[at : at + range_bytes] for part in parts for at in range(0, len(part), range_bytes)]
    for lost in (None, drawn.draw(st.integers(0, len(data) - 1))):
        arrived = bytearray(data)
        if lost is not None:
            arrived[lost] ^= 1
        found = ArrivingChecksum(spans, part_bytes=length, stored=stored)
        order = drawn.draw(st.permutations(spans))
        said = [found.add(span, stored.crc.update(bytes(arrived[span.start : span.stop]), 0)) for span in order]
        assert said == [False] * (len(spans) - 1) + [True]
        assert found.is_stored() == (lost is None)


@pytest.mark.parametrize("answer", [{}, {"x-amz-checksum-sha256": "eA=="}, {"etag": "1"}])
def test_what_is_no_crc_is_left_to_the_etag(answer: dict[str, str]) -> None:
    assert StoredChecksum.of(answer) is None


@pytest.fixture
def damaged_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of one piece is another one."""
    pieces = SignedReads.pieces

    def damaged(reads: SignedReads, key: str, **where: Any) -> Iterator[bytes]:
        for number, piece in enumerate(pieces(reads, key, **where)):
            yield bytes([piece[0] ^ 1]) + bytes(piece[1:]) if number == 1 else piece

    monkeypatch.setattr(SignedReads, "pieces", damaged)


def test_a_piece_that_was_damaged_is_found(
    endpoint: str, bucket: str, put: Put, tmp_path: Path, damaged_pieces: None
) -> None:
    put("large", os.urandom(LARGE))
    with pytest.raises(DigestError, match="large: the bytes that arrived are not those"):
        stage(f"s3://{bucket}/set", tmp_path, endpoint=endpoint, range_bytes=2 * PIECE_BYTES)


def test_an_answer_that_breaks_off_is_continued_where_it_was(
    endpoint: str, bucket: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(LARGE)
    put("large", data)
    pieces, read, asked = SignedReads.pieces, ObjectSource.read, []

    def broken(reads: SignedReads, key: str, **where: Any) -> Iterator[bytes]:
        yield next(pieces(reads, key, **where))

    def told(source: ObjectSource, one: SourceObject, offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return read(source, one, offset, length)

    monkeypatch.setattr(SignedReads, "pieces", broken)
    monkeypatch.setattr(ObjectSource, "read", told)
    stage(f"s3://{bucket}/set", tmp_path, endpoint=endpoint, threads=1, range_bytes=LARGE - 1)
    assert (tmp_path / "large").read_bytes() == data
    assert [offset + length for offset, length in asked] == [LARGE - 1, LARGE]
    assert 0 < asked[0][0] < LARGE - 1


def test_parts_of_different_lengths_are_verified_by_a_checksum_of_all_bytes(
    endpoint: str, bucket: str, put_parts: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto stores none of such uploads, so the test says what S3 would."""
    pieces = [os.urandom(6 << 20), os.urandom(5 << 20), os.urandom(1000)]
    whole = b"".join(pieces)
    put_parts("uneven", pieces)
    for answer, unverified in (({}, 1), (answer_for("x-amz-checksum-crc64nvme", whole, None), 0)):
        folder = tmp_path / str(unverified)
        stored = StoredChecksum.of(answer)
        monkeypatch.setattr(ObjectSource, "stored_checksum", lambda *_, stored=stored: stored)
        done = stage(f"s3://{bucket}/set", folder, endpoint=endpoint, range_bytes=1 << 20)
        assert (folder / "uneven").read_bytes() == whole
        assert done.marker.unverified == unverified


def test_parts_that_are_encrypted_with_a_key_are_verified_by_a_checksum_of_the_parts(
    endpoint: str, bucket: str, put_parts: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [os.urandom(5 << 20), os.urandom(1000)]
    whole = b"".join(pieces)
    put_parts("encrypted", pieces, ServerSideEncryption="aws:kms")
    for answer, unverified in (({}, 1), (answer_for("x-amz-checksum-crc32", whole, len(pieces[0])), 0)):
        folder = tmp_path / str(unverified)
        stored = StoredChecksum.of(answer)
        monkeypatch.setattr(ObjectSource, "stored_checksum", lambda *_, stored=stored: stored)
        done = stage(f"s3://{bucket}/set", folder, endpoint=endpoint, range_bytes=1 << 20)
        assert (folder / "encrypted").read_bytes() == whole
        assert done.marker.unverified == unverified
