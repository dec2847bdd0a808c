"""A large object goes on arriving where it was, whatever the death of a copier or of a node has left of it."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.staging.content_digest import ArrivingDigest
from hvd_elastic.staging.partial_file import PartialFile, partial_names
from hvd_elastic.stores.bucket.listed_page import SourceObject

SIZES = st.integers(1, 300)


def etag_of(data: bytes, part_bytes: int | None) -> str:
    """As S3 makes it."""
    if part_bytes is None:
        return hashlib.md5(data, usedforsecurity=False).hexdigest()
    parts = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


def arrive(file: PartialFile, spans: Sequence[range], data: bytes) -> tuple[int, int]:
    """Have ranges arrive; how many had to be read, and how often it was said that all are there."""
    read = whole = 0
    for span in spans:
        found = file.kept(span)
        if found is None:
            read += 1
            found = data[span.start : span.stop]
            file.write(span, found)
        whole += file.arrived(span, found)
    return read, whole


@settings(deadline=None)
@given(st.data(), st.binary(min_size=1, max_size=300), st.integers(1, 50), st.none() | st.integers(1, 120))
def test_any_copier_may_die_anywhere(
    drawn: st.DataObject, data: bytes, range_bytes: int, part_bytes: int | None
) -> None:
    one = SourceObject(key="k", size_bytes=len(data), etag=etag_of(data, part_bytes))
    with TemporaryDirectory() as name:
        path, journal = (Path(name) / each for each in partial_names(one))
        known = 0
        for _ in range(drawn.draw(st.integers(0, 4), label="deaths")):
            file = PartialFile(Path(name), one, range_bytes=range_bytes, part_bytes=part_bytes)
            order = drawn.draw(st.permutations(file.ranges), label="order")
            some = order[: drawn.draw(st.integers(0, len(order)), label="arrived")]
            read, _ = arrive(file, some, data)
            file.close()
            known += read
            match drawn.draw(st.sampled_from(["nothing", "nothing", "line", "bytes", "file"]), label="lost"):
                case "line":  # the last one was being written
                    text = journal.read_bytes()
                    journal.write_bytes(text[: max(0, len(text) - drawn.draw(st.integers(1, 30)))])
                    known = 0
                case "bytes":  # the node died before they were on disk
                    lost = drawn.draw(st.integers(0, len(data) - 1))
                    content = bytearray(path.read_bytes())
                    content[lost] ^= 1
                    path.write_bytes(content)
                    known = 0
                case "file":
                    path.unlink()
                    known = 0
        file = PartialFile(Path(name), one, range_bytes=range_bytes, part_bytes=part_bytes)
        read, whole = arrive(file, drawn.draw(st.permutations(file.ranges)), data)
        file.close()
        assert (path.read_bytes(), file.etag, whole) == (data, one.etag, 1)
        assert read + known <= len(file.ranges)


@given(st.binary(min_size=1, max_size=100), st.integers(1, 20))
def test_what_was_begun_of_an_older_version_is_not_found(data: bytes, range_bytes: int) -> None:
    old, new = (SourceObject(key="k", size_bytes=len(data), etag=etag) for etag in ("1", "2"))
    with TemporaryDirectory() as name:
        for one, expected in ((old, None), (old, data[:range_bytes]), (new, None)):
            file = PartialFile(Path(name), one, range_bytes=range_bytes, part_bytes=None)
            assert file.kept(file.ranges[0]) == expected
            arrive(file, file.ranges, data)
            file.close()


@given(SIZES, SIZES, SIZES)
def test_ranges_are_all_bytes_in_order_and_none_is_in_two_parts(size: int, range_bytes: int, part_bytes: int) -> None:
    one = SourceObject(key="k", size_bytes=size, etag="1")
    with TemporaryDirectory() as name:
        file = PartialFile(Path(name), one, range_bytes=range_bytes, part_bytes=part_bytes)
        file.close()
    assert [byte for span in file.ranges for byte in span] == list(range(size))
    assert all(0 < len(span) <= range_bytes for span in file.ranges)
    assert all(span.start // part_bytes == (span.stop - 1) // part_bytes for span in file.ranges)


@given(st.data(), st.binary(min_size=1, max_size=100), st.integers(1, 20))
def test_a_digest_reads_again_only_what_came_too_soon(drawn: st.DataObject, data: bytes, range_bytes: int) -> None:
    spans = [range(first, min(first + range_bytes, len(data))) for first in range(0, len(data), range_bytes)]
    again = []

    def read(span: range) -> bytes:
        again.append(span)
        return data[span.start : span.stop]

    digest = ArrivingDigest(spans, part_bytes=len(data), read=read)
    order = drawn.draw(st.permutations(spans))
    said = [digest.add(span, data[span.start : span.stop]) for span in order]
    assert said == [False] * (len(spans) - 1) + [True]
    assert digest.etag(in_parts=False) == etag_of(data, None)
    assert order[0] not in again or order[0].start > 0
    assert spans[0] not in again
    assert len(again) == len(set(again)) < len(spans)


def test_threads_may_bring_ranges_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    data = os.urandom(1 << 20)
    one = SourceObject(key="k", size_bytes=len(data), etag=etag_of(data, 300_000))
    file = PartialFile(tmp_path, one, range_bytes=4096, part_bytes=300_000)
    with ThreadPoolExecutor(8) as pool:
        whole = sum(pool.map(lambda span: arrive(file, [span], data)[1], file.ranges))
    file.close()
    assert (whole, file.etag, file.path.read_bytes()) == (1, one.etag, data)
