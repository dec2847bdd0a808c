"""How fast a job is at sizes that it never had."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.autoscale.observed_speeds import MOST_SIZES, ObservedSpeeds

reports = st.lists(
    st.tuples(st.integers(0, 100), st.floats(allow_nan=True, allow_infinity=True) | st.floats(0.1, 1e3)), max_size=60
)


@given(heard=reports, most=st.integers(1, 100))
def test_every_size_has_a_speed_and_none_more_than_its_share_of_one_workers(
    heard: list[tuple[int, float]], most: int
) -> None:
    observed = ObservedSpeeds()
    for size, speed in heard:
        observed = observed.heard(size, speed)
    speeds = observed.speeds(most)
    assert len(observed.means) <= MOST_SIZES
    assert len(speeds) == most + 1
    assert speeds[0] == 0.0
    assert all(0 < speed < float("inf") for speed in speeds[1:])
    assert all(speeds[size] <= size * speeds[1] * (1 + 1e-6) for size in range(1, most + 1))


@given(serial=st.floats(0.0, 1.0), one=st.floats(0.1, 1e4), sizes=st.sets(st.integers(1, 32), min_size=2))
def test_a_job_that_follows_the_law_is_known_after_two_sizes(serial: float, one: float, sizes: set[int]) -> None:
    def true(workers: int) -> float:
        return one / (serial + (1 - serial) / workers)

    observed = ObservedSpeeds()
    for size in sizes:
        observed = observed.heard(size, true(size))
    assert observed.speeds(64)[64] == pytest.approx(true(64), rel=1e-2)


def test_a_job_that_workers_slow_down_is_known_to_be_slowed_down() -> None:
    observed = ObservedSpeeds().heard(2, 20.0).heard(4, 30.0).heard(8, 24.0)
    speeds = observed.speeds(8)
    assert max(range(9), key=speeds.__getitem__) in (3, 4, 5, 6)


def test_noise_averages_out() -> None:
    rng, observed = random.Random(4), ObservedSpeeds()
    for _ in range(200):
        observed = observed.heard(2, 20 * rng.uniform(0.8, 1.2)).heard(4, 36 * rng.uniform(0.8, 1.2))
    assert observed.speeds(4)[2] == pytest.approx(20, rel=0.05)
    assert observed.speeds(4)[4] == pytest.approx(36, rel=0.05)


def test_each_further_worker_of_an_unknown_job_is_worth_less_so_unknown_jobs_share_equally() -> None:
    gains = [after - before for before, after in pairwise(ObservedSpeeds().speeds(8))]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < gains[0]
