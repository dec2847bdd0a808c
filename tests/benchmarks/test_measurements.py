"""What was measured in several runs: all of one product is shown together, and nothing of another beside it."""

from pathlib import Path

import pytest

from benchmarks.faulted.fault_cost import FaultCost
from benchmarks.faulted.fault_rounds import FaultRounds
from benchmarks.report import measurements
from benchmarks.report.machine import product_digest
from benchmarks.report.measurements import last_measured, measured_of
from benchmarks.report.record import NEVER

COST = FaultCost(stall=0.5, whole=NEVER, repeated=1, wrong_samples=0, ended="stands still")


def rounds(fault: str, *costs: FaultCost) -> FaultRounds:
    return FaultRounds(fault=fault, system="launch", costs=[*costs])


def test_parts_of_one_product_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(measurements, "product_digest", lambda: "another")
        rounds("hung").keep(tmp_path)
        rounds("killed", COST).keep(tmp_path)
    rounds("killed", COST, COST).keep(tmp_path)
    rounds("cut off", COST).keep(tmp_path)
    found = last_measured(tmp_path, FaultRounds.from_json)
    assert found.parts == [rounds("cut off", COST), rounds("killed", COST, COST)]
    assert found.left_out == ["left out, of another product: hung-launch"]
    assert measured_of("another", tmp_path, FaultRounds.from_json) == [rounds("hung")]
    record = found.record(name="faults", question="What do faults cost?")
    assert (record.product, record.machine, record.began) == (product_digest(), found.machine, found.written)


def test_where_nothing_was_measured_the_program_ends_and_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=str(tmp_path)):
        last_measured(tmp_path, FaultRounds.from_json)
