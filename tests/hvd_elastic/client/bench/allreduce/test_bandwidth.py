"""The formula of nccl-tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.bench.allreduce.allreduce_measurement import algorithm_bandwidth, bus_bandwidth

SIZES = st.integers(4, 2**36)
SECONDS = st.floats(1e-7, 1e3)


def test_by_hand() -> None:
    """A row of a run of nccl-tests on 16 ranks: 1 GiB in 12.35 ms is 86.9 GB/s, and 163 GB/s on the bus."""
    assert algorithm_bandwidth(2**30, 0.01235) / 1e9 == pytest.approx(86.94, abs=0.01)
    assert bus_bandwidth(2**30, 0.01235, ranks=16) / 1e9 == pytest.approx(163.02, abs=0.01)


@given(SIZES, SECONDS)
def test_two_ranks_have_as_much_on_the_bus_as_the_algorithm(size: int, seconds: float) -> None:
    assert bus_bandwidth(size, seconds, ranks=2) == algorithm_bandwidth(size, seconds)


@given(SIZES, SECONDS, st.integers(2, 10_000))
def test_the_bus_carries_less_than_twice_the_message(size: int, seconds: float, ranks: int) -> None:
    """With S bytes at link speed B, an all-reduce takes at least 2(n-1)/n S/B: then the formula gives B again."""
    link = size / seconds
    best = 2 * (ranks - 1) / ranks * size / link
    assert bus_bandwidth(size, best, ranks=ranks) == pytest.approx(link)
    assert bus_bandwidth(size, seconds, ranks=ranks) < 2 * algorithm_bandwidth(size, seconds)


def test_one_rank_moves_nothing() -> None:
    assert bus_bandwidth(1024, 1.0, ranks=1) == 0
