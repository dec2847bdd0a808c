import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hvd_elastic.stores.location import MOST_PART_MIB
from hvd_elastic.trainer.checkpoint.errors import CorruptError
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import (
    MIB,
    MOST_PARTS,
    CheckpointId,
    Manifest,
    choose_part_bytes,
    split_into_parts,
)

MANIFEST = Manifest(
    job="research/a",
    owner="f00d",
    incarnation="one",
    epoch=2,
    sequence=7,
    step=400,
    world_size=3,
    time=1.5,
    reason="interval",
    data="data/00000002-00000007-ab",
    size_bytes=11,
    part_bytes=5,
    sha256=("aa", "bb", "cc"),
)


def test_it_comes_back() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST
    assert MANIFEST.key == "manifests/00000002-00000007-step-400.json"
    assert (
        CheckpointId.from_key(MANIFEST.key) == CheckpointId.from_key(MANIFEST.data) == CheckpointId(epoch=2, sequence=7)
    )


@given(st.integers(0, len(MANIFEST.encode()) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed_or_means_nothing(at: int, change: int) -> None:
    data = bytearray(MANIFEST.encode())
    data[at] ^= change
    with suppress(CorruptError):
        assert Manifest.decode(bytes(data)) == MANIFEST


@given(st.integers(0, len(MANIFEST.encode()) - 1))
def test_a_truncated_one_is_refused(length: int) -> None:
    with pytest.raises(CorruptError):
        Manifest.decode(MANIFEST.encode()[:length])


def test_one_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(CorruptError, match="names 2 parts"):
        Manifest.decode(replace(MANIFEST, sha256=("aa", "bb")).encode())


@pytest.mark.parametrize("data", [b"[]", b"null", b"3", b"\xff", b"{}", json.dumps({"digest": 1}).encode()])
def test_other_json_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptError):
        Manifest.decode(data)


@given(st.integers(1, 1000), st.integers(1, 50))
def test_parts_cover_a_size_without_gap(size: int, part: int) -> None:
    cut = split_into_parts(size, part)
    assert [at for at, _ in cut] == list(range(0, size, part))
    assert sum(length for _, length in cut) == size
    assert all(length == part for _, length in cut[:-1])


@given(st.integers(1, 1 << 60), st.integers(MIB, 5 << 30))
@example(78 << 30, 8 << 20)
@example((80_000 << 20) + 1, 8 << 20)
@example(10_000 * (5 << 30), 8 << 20)
def test_there_are_never_more_parts_than_s3_takes(size: int, least: int) -> None:
    part = choose_part_bytes(size, least=least)
    assert part >= least
    assert -(-size // part) <= MOST_PARTS
    if part > least:
        assert -(-size // (part - MIB)) > MOST_PARTS, "no larger than they need to be"
        assert part % MIB == 0
    if size <= MOST_PARTS * MOST_PART_MIB * MIB:
        assert part <= max(least, MOST_PART_MIB * MIB)


@pytest.mark.parametrize("key", ["latest", "owner.json", "manifests/x", "manifests/1-2-x", "other/00000001-00000001-x"])
def test_other_keys_have_no_id(key: str) -> None:
    assert CheckpointId.from_key(key) is None
