"""How `benchmarks.simulation_truth` predicts a window."""

from dataclasses import replace

import pytest

from benchmarks.replay.measured_window import Measured, goodput
from benchmarks.simulation_truth import compare, predict
from benchmarks.systems.product import LAUNCH
from benchmarks.systems.stock import STOCK

SIZES = [(second / 20, 2 if 200 <= second < 400 else 3) for second in range(600)]
STEPS = [{"time": at, "step": number, "size": size} for number, (at, size) in enumerate(SIZES)]
ASKS = [{"second": 10.0, "gpus": 1}, {"second": 20.0, "gpus": 0}]
"""Inference takes one of three GPUs for ten seconds."""
MEASURED = Measured(window="w", system=LAUNCH.name, seconds=30.0, asks=ASKS, steps=STEPS, waits=[1.0])


def test_a_resize_costs_what_was_measured_of_one() -> None:
    """Nothing was lost in the run itself: what the prediction lacks are the stalls of a take and a give."""
    assert goodput(MEASURED) == pytest.approx(1.0, abs=0.01)
    found = compare(MEASURED)
    assert 0.85 < found.predicted_goodput < 0.97
    assert found.goodput_apart == pytest.approx(goodput(MEASURED) - found.predicted_goodput)


def test_stock_does_not_come_back_to_what_it_lost() -> None:
    assert compare(replace(MEASURED, system=STOCK.name)).predicted_goodput < compare(MEASURED).predicted_goodput


def test_inference_waits_in_each_window() -> None:
    assert predict([MEASURED, MEASURED], MEASURED.seconds).inference.pods == 2
