"""What `benchmarks.operator_wait` makes of what it has measured."""

from pathlib import Path

from benchmarks.mpi_operator.measured_scale import Change, Pace
from benchmarks.mpi_operator.measured_waits import MeasuredWaits, Operator, Writes
from benchmarks.operator_wait import wait_table
from benchmarks.report.measurements import last_measured
from benchmarks.report.record import NEVER

PACE = Pace.parse("50:1000")


def test_an_operator_that_stood_still_is_counted_and_no_figure_of_the_others(tmp_path: Path) -> None:
    stood = {Change.HALF_LEAVE: [4.0, NEVER, 8.0], Change.HALF_BACK: [NEVER, NEVER, NEVER]}
    went = {Change.HALF_LEAVE: [3.0, 4.0, 5.0], Change.HALF_BACK: [6.0, 7.0, 8.0]}
    for operator, writes, seconds in (
        (Operator.PATCHED, Writes.NOBODY, went),
        (Operator.STOCK, Writes.EACH_2_S, stood),
        (Operator.STOCK, Writes.NOBODY, went),
    ):
        MeasuredWaits(
            operator=operator, writes=writes, workers=512, pace=PACE, seconds=seconds, cpu=[1.0, 3.0, 2.0]
        ).keep(tmp_path)
    found = sorted(last_measured(tmp_path, MeasuredWaits.from_json).parts, key=lambda one: one.order)
    assert [(one.operator, one.writes) for one in found] == [
        (Operator.STOCK, Writes.NOBODY),
        (Operator.STOCK, Writes.EACH_2_S),
        (Operator.PATCHED, Writes.NOBODY),
    ]
    assert found[1].seconds == stood
    rows = wait_table(found).texts()
    assert rows[0][4:] == ["0 of 3", "4.0", "5.0", "0 of 3", "7.0", "8.0", "2.0"]
    assert rows[1][4:] == ["1 of 3", "6.0", "8.0", "3 of 3", "-", "-", "2.0"]
