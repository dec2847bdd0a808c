"""What `benchmarks.recorded_days` makes of the windows that were measured."""

from itertools import product
from pathlib import Path

import pytest

from benchmarks import recorded_days
from benchmarks.replay.measured_window import Measured
from benchmarks.replay.trace_window import HELD_OUT, REAL_TIME
from benchmarks.report import measurements
from benchmarks.report.record import FOLDER, Record
from benchmarks.systems.product import HOROVODRUN, LAUNCH
from benchmarks.systems.stock import STOCK


def test_a_report_tells_apart_what_was_played_in_other_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    old = Measured(window=HELD_OUT[0].name, system=HOROVODRUN.name, seconds=180.0, asks=[], steps=[], waits=[])
    with monkeypatch.context() as patched:
        patched.setattr(measurements, "product_digest", lambda: "of another state")
        old.keep(recorded_days.OUT)
    steps = [{"time": 0.1 * number, "step": number, "size": 3} for number in range(100)]
    asks = [{"second": 2.0, "gpus": 1}, {"second": 4.0, "gpus": 0}]
    kinds = [(REAL_TIME[0], 180.0), (REAL_TIME[0], 3600.0), (HELD_OUT[0], 180.0)]
    for (window, seconds), system in product(kinds, (LAUNCH, STOCK)):
        one = Measured(window=window.name, system=system.name, seconds=seconds, asks=asks, steps=steps, waits=[])
        one.keep(recorded_days.OUT)
    recorded_days.report(["what broke"])
    record = Record.read(FOLDER / "recorded_days.json")
    assert [table.title.partition(", ")[2] for table in record.tables[1::2]] == [
        "real time",
        "180 s each",
        "held out, 180 s each",
    ]
    assert [row[:2] for row in record.tables[1].rows] == [[LAUNCH.name, 1], [STOCK.name, 1]]
    assert record.tables[0].note == f"what broke\nleft out, of another product: {HELD_OUT[0].name}-horovodrun-180s"
    assert sorted(record.pictures) == sorted(f"{window.name}-{seconds:.0f}s" for window, seconds in kinds)
    assert {aim.what: aim.bound for aim in record.aims} == {
        "goodput of launch over 1 windows, real time, as a share of what inference leaves": 0.998,
        "GPU-seconds that launch loses by a GPU's take, in real time": 1.0,
        "GPU-seconds that launch loses by a GPU's give, in real time": 3.5,
        "goodput of launch over 1 windows, 180 s each, as a share of what inference leaves": 0.97,
        "goodput of launch over 1 windows, held out, 180 s each, as a share of what inference leaves": 0.97,
    }
