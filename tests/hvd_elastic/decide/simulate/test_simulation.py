"""The entry point."""

import math

import pytest

from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.stalls import MEASURED, OURS
from hvd_elastic.decide.simulate.workload import Way
from tests.hvd_elastic.decide.simulate.made_days import STALLS, day, job, serving


@pytest.mark.parametrize("way", list(Way))
def test_progress_rises_to_the_end(way: Way) -> None:
    seen: list[float] = []
    pods = tuple(serving(float(second), 5) for second in range(1, 1000))
    simulate(day(nodes=[4], pods=pods), (job("a"),), way, STALLS, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) <= 202


def test_each_way_has_measured_stalls_and_ours_cost_least() -> None:
    assert set(MEASURED) == set(Way)
    assert all(OURS.grow <= stalls.grow and OURS.restart <= stalls.restart for stalls in MEASURED.values())


def test_a_pod_takes_as_long_to_start_in_every_way_and_bind_at_the_median() -> None:
    pods = tuple(serving(float(second), 5) for second in range(10, 900, 10))
    waiting = {way: simulate(day(nodes=[4], pods=pods), (), way, OURS).inference for way in Way}
    assert len(set(waiting.values())) == 1
    assert waiting[Way.OURS].p50 == pytest.approx(OURS.bind, abs=0.05)
    two, three = (OURS.bind * math.exp(sigmas * OURS.bind_sigma) for sigmas in (2, 3))
    assert two < waiting[Way.OURS].max < three, "of 89 pods"
