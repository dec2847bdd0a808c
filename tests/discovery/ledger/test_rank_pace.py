"""What ranks leave of their steps, read: whatever a script writes there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.ledger.rank_pace import PacedBlock, rank_paces
from hvd_elastic.mpijob.contract import PACE_MAX_BYTES
from hvd_elastic.trainer.telemetry.pace.pace_file import BLOCKS, PaceFile
from hvd_elastic.trainer.telemetry.pace.step_pace import PaceBlock

ROW = [1000.0, 9, 0.5, 0.3, 0.1]
GOOD = {"rank": 1, "size": 2, "blocks": [ROW]}


def test_a_block_is_read_with_its_age() -> None:
    (pace,) = rank_paces([GOOD], 1002.5)
    assert (pace.rank, pace.size) == (1, 2)
    assert pace.blocks == (PacedBlock(unix=-2.5, steps=9, step_seconds=0.5, computing=0.3, loading=0.1),)
    assert (pace.blocks[0].own, pace.blocks[0].seconds) == (0.4, 4.5)


@pytest.mark.parametrize(
    "document",
    [
        {**GOOD, "rank": True},
        {**GOOD, "rank": -1},
        {**GOOD, "size": "2"},
        {**GOOD, "blocks": {}},
        {"blocks": [ROW]},
        [],
        None,
    ],
)
def test_what_is_no_pace_is_left_out(document: object) -> None:
    assert [pace.rank for pace in rank_paces([document, GOOD], 1001.0)] == [1]


@pytest.mark.parametrize(
    "row",
    [
        [],
        ROW[:4],
        [*ROW, 1.0],
        [1005.0, *ROW[1:]],
        ["1000", *ROW[1:]],
        [1000.0, 0, *ROW[2:]],
        [1000.0, 9, -0.5, 0.3, 0.1],
        [1000.0, 9, 0.5, 1e300, 0.1],
        [1000.0, 9, 0.5, None, 0.1],
        [1000.0, 9, 0.5, 0.3, "0.1"],
        "row",
    ],
)
def test_what_is_no_block_is_left_out(row: Any) -> None:
    (pace,) = rank_paces([{**GOOD, "blocks": [row, ROW]}], 1001.0)
    assert len(pace.blocks) == 1


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KEYS = st.sampled_from(["rank", "size", "blocks", "x"])
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=4))


@given(JSON, JSON)
def test_whatever_is_written_costs_only_itself(document: object, told: object) -> None:
    for pace in rank_paces(document, told):
        assert pace.blocks is not None


def test_the_longest_file_is_passed_on(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_ELASTIC_RUN_DIR", str(tmp_path))
    block = PaceBlock(unix=1.7e9 + 0.123, steps=123456, step_seconds=1 / 81e3, computing=1 / 90e3, loading=1 / 7e7)
    file = PaceFile()
    for _ in range(BLOCKS + 1):
        file.add(block, rank=99_999, size=100_000, local_rank=3)
    (written,) = tmp_path.iterdir()
    assert written.name == "pace.3"
    assert written.stat().st_size <= PACE_MAX_BYTES
    file.begin(3)
    assert list(tmp_path.iterdir()) == []
