"""Daly's interval, what is known of losses, and the bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.checkpoint_interval import (
    FIRST_SECONDS,
    LEAST_SECONDS,
    MOST_SECONDS,
    PRIOR_SECONDS,
    LossHistory,
    checkpoint_seconds,
    daly_seconds,
)

HOUR = 3600.0
SECONDS = st.floats(0.0, 1e7)


def test_dalys_formula() -> None:
    assert daly_seconds(2.0, 100.0) == pytest.approx(18.0)


def test_where_a_checkpoint_costs_half_of_what_passes_between_losses_it_is_that() -> None:
    assert daly_seconds(50.0, 100.0) == 100.0


@given(st.floats(0.01, 10.0), st.floats(1000.0, 1e6))
def test_no_other_interval_loses_much_less(cost: float, mean: float) -> None:
    """By the share of time that is lost to first order: checkpoints, and half an interval at each loss."""

    def lost(interval: float) -> float:
        return cost / (interval + cost) + (interval + cost) / 2 / mean

    best = daly_seconds(cost, mean)
    assert all(lost(best) <= 1.001 * lost(best * factor) for factor in (0.2, 0.5, 0.8, 1.25, 2.0, 5.0))


def test_what_is_seen_outweighs_what_was_thought() -> None:
    assert LossHistory().mean_seconds == PRIOR_SECONDS
    quiet = LossHistory(trained_seconds=100 * HOUR)
    assert quiet.mean_seconds == pytest.approx(102 * HOUR)
    often = LossHistory(trained_seconds=100 * HOUR, losses=400)
    assert often.mean_seconds == pytest.approx(HOUR / 4, rel=0.02)


def test_the_interval_grows_while_nothing_is_lost_and_shrinks_with_each_loss() -> None:
    def at(hours: float, losses: int) -> float:
        history = LossHistory(trained_seconds=hours * HOUR, losses=losses)
        return checkpoint_seconds(history, cost_seconds=0.5, save_seconds=2.0)

    assert at(0, 0) < at(10, 0) < at(100, 0)
    assert at(100, 0) > at(100, 1) > at(100, 50)
    assert at(0, 0) == pytest.approx(math.sqrt(2 * 0.5 * PRIOR_SECONDS))


def test_before_anything_is_measured() -> None:
    assert checkpoint_seconds(LossHistory()) == FIRST_SECONDS
    assert checkpoint_seconds(LossHistory(), save_seconds=100.0) == 200.0


@given(SECONDS, st.integers(0, 1000), st.none() | st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_bounds(trained: float, losses: int, cost: float | None, save: float) -> None:
    seconds = checkpoint_seconds(
        LossHistory(trained_seconds=trained, losses=losses), cost_seconds=cost, save_seconds=save
    )
    assert max(LEAST_SECONDS, save) <= seconds <= max(MOST_SECONDS, 2 * save)
