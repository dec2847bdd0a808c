"""What is made of waiting."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.engine.inference_record import MOST_EXACT, InferenceRecord


@given(seconds=st.lists(st.floats(0, 1e6), max_size=30), never=st.integers(0, 3))
def test_quantiles_are_in_order(seconds: list[float], never: int) -> None:
    waiting = InferenceRecord(seconds).waiting(never)
    assert waiting.pods == len(seconds) + never
    assert min(seconds, default=0.0) <= waiting.p50 <= waiting.p99 * (1 + 1e-9)
    assert waiting.p99 <= waiting.max * (1 + 1e-9)


def test_a_quantile_lies_between_the_two_nearest_waits() -> None:
    waiting = InferenceRecord([1.0, 3.0, 3.0, 4.0, 4.0, 8.0]).waiting()
    assert (waiting.p50, waiting.max) == (3.5, 8.0)
    assert waiting.p99 == pytest.approx(4 + 0.95 * 4)


def test_a_year_of_waits_takes_the_room_of_some_days_and_says_the_same() -> None:
    draw = random.Random(0)
    waits = [draw.lognormvariate(0.4, 0.2) for _ in range(60 * MOST_EXACT)]
    tracemalloc.start()
    try:
        record = InferenceRecord(waits[: 20 * MOST_EXACT])
        days = tracemalloc.get_traced_memory()[0]
        for seconds in waits[20 * MOST_EXACT :]:
            record.note(seconds)
        assert tracemalloc.get_traced_memory()[0] - days < days / 2, "three times as many"
    finally:
        tracemalloc.stop()
    found, ordered = record.waiting(), sorted(waits)
    assert found.pods == len(waits)
    assert found.p50 == pytest.approx(ordered[len(waits) // 2], rel=1e-3)
    assert found.p99 == pytest.approx(ordered[len(waits) * 99 // 100], rel=1e-3)
    assert found.max == ordered[-1]
