"""A large object goes on arriving where it was, whatever the death of a copier or of a node has left of it."""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.staging.partial_file import PartialFile, partial_names
from hvd_elastic.stores.object_requests import ListedObject
from hvd_elastic.stores.stored_digest import StoredDigest

SIZES = st.integers(1, 300)
PART_BYTES = 40
"""Of an object that was uploaded in parts."""


def digest_of(data: bytes, kind: str) -> StoredDigest:
    if kind == "md5":
        return StoredDigest(algorithm="md5", value=hashlib.md5(data, usedforsecurity=False).digest())
    if kind == "crc32":
        return StoredDigest(algorithm="crc32", value=crc32(data))
    parts = (data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))
    return StoredDigest(algorithm="crc32", value=crc32(b"".join(map(crc32, parts))), part_bytes=PART_BYTES)


def crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


KINDS = st.sampled_from(["crc32", "md5", "crc32 of parts"])


def arrive(file: PartialFile, spans: Sequence[tuple[int, int]], data: bytes) -> tuple[int, int]:
    """Have ranges arrive; how many had to be read, and how often it was said that all are there."""
    read = whole = 0

    def pieces(start: int, stop: int) -> Iterator[bytes]:
        nonlocal read
        read += 1
        middle = (start + stop) // 2
        yield from (piece for piece in (data[start:middle], data[middle:stop]) if piece)

    for span in spans:
        whole += file.arrive(span, pieces(*span))
    return read, whole


@settings(deadline=None)
@given(st.data(), st.binary(min_size=1, max_size=300), st.integers(1, 100), KINDS)
def test_any_copier_may_die_anywhere(drawn: st.DataObject, data: bytes, range_bytes: int, kind: str) -> None:
    one, digest = ListedObject(key="k", size_bytes=len(data), version="1"), digest_of(data, kind)
    with TemporaryDirectory() as name:
        path, journal = (Path(name) / each for each in partial_names(one))
        known = 0
        for _ in range(drawn.draw(st.integers(0, 4), label="deaths")):
            file = PartialFile(Path(name), one, range_bytes=range_bytes, digest=digest)
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
        file = PartialFile(Path(name), one, range_bytes=range_bytes, digest=digest)
        read, whole = arrive(file, drawn.draw(st.permutations(file.ranges)), data)
        assert (path.read_bytes(), file.is_whole(), whole) == (data, True, 1)
        file.close()
        assert read + known <= len(file.ranges)


@given(st.data(), st.binary(min_size=1, max_size=300), st.integers(1, 100), KINDS)
def test_bytes_that_were_damaged_are_not_the_object(
    drawn: st.DataObject, data: bytes, range_bytes: int, kind: str
) -> None:
    one = ListedObject(key="k", size_bytes=len(data), version="1")
    damaged = bytearray(data)
    damaged[drawn.draw(st.integers(0, len(data) - 1))] ^= 1
    with TemporaryDirectory() as name:
        file = PartialFile(Path(name), one, range_bytes=range_bytes, digest=digest_of(data, kind))
        arrive(file, file.ranges, bytes(damaged))
        assert not file.is_whole()
        file.close()


@given(st.binary(min_size=1, max_size=100), st.integers(1, 20))
def test_what_was_begun_of_an_older_version_is_not_found(data: bytes, range_bytes: int) -> None:
    old, new = (ListedObject(key="k", size_bytes=len(data), version=version) for version in ("1", "2"))
    with TemporaryDirectory() as name:
        for one, is_there in ((old, False), (old, True), (new, False)):
            file = PartialFile(Path(name), one, range_bytes=range_bytes, digest=None)
            read, _ = arrive(file, file.ranges, data)
            file.close()
            assert read == (0 if is_there else len(file.ranges))


@given(SIZES, SIZES)
def test_ranges_are_all_bytes_in_order(size: int, range_bytes: int) -> None:
    one = ListedObject(key="k", size_bytes=size, version="1")
    with TemporaryDirectory() as name:
        file = PartialFile(Path(name), one, range_bytes=range_bytes, digest=None)
        file.close()
    assert [byte for span in file.ranges for byte in range(*span)] == list(range(size))
    assert all(0 < stop - start <= range_bytes for start, stop in file.ranges)


def test_threads_may_bring_ranges_at_once(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    one = ListedObject(key="k", size_bytes=len(data), version="1")
    file = PartialFile(tmp_path, one, range_bytes=4096, digest=digest_of(data, "crc32"))
    with ThreadPoolExecutor(8) as pool:
        whole = sum(pool.map(lambda span: arrive(file, [span], data)[1], file.ranges))
    assert (whole, file.is_whole(), file.path.read_bytes()) == (1, True, data)
    file.close()
