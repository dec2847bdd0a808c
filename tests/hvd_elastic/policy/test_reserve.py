"""What stays idle for inference: enough for the chosen quantile, never negative, learned in the right direction."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.reserve import (
    DAY_SECONDS,
    MOST_WINDOWS,
    WINDOW_SECONDS,
    DemandHistory,
    buffer_chunks,
    forecast,
    learned,
    reserve,
    waiting_share,
)

looks = st.lists(st.tuples(st.floats(0, 3 * DAY_SECONDS), st.integers(0, 64), st.booleans()), max_size=60)
quantiles = st.sampled_from((0.5, 0.9, 0.95, 0.99))


def history_of(seen: list[tuple[float, int, bool]], quantile: float = 0.95) -> DemandHistory:
    history = DemandHistory()
    for now, gpus, waits in sorted(seen):
        history = history.seen(now, gpus, waits=waits, quantile=quantile)
    return history


@given(seen=looks, unclaimed=st.integers(-5, 100), quantile=quantiles, now=st.floats(0, 4 * DAY_SECONDS))
def test_a_reserve_is_never_negative_and_never_more_than_there_is(
    seen: list[tuple[float, int, bool]], unclaimed: int, quantile: float, now: float
) -> None:
    kept = reserve(history_of(seen, quantile), now, unclaimed=unclaimed, quantile=quantile)
    assert 0 <= kept <= max(0, unclaimed)


@given(seen=looks)
def test_windows_stay_in_order(seen: list[tuple[float, int, bool]]) -> None:
    began = [window.began for window in history_of(seen).windows]
    assert began == sorted(set(began))
    assert all(window.rise >= 0 for window in history_of(seen).windows)


@given(care=st.floats(0.1, 4.0), waiting=st.floats(0, 1), more=st.floats(0, 1), quantile=quantiles)
def test_more_waiting_never_means_less_care(care: float, waiting: float, more: float, quantile: float) -> None:
    low, high = sorted((waiting, more))
    assert 0.1 <= learned(care, low, quantile=quantile) <= learned(care, high, quantile=quantile) <= 4.0


def test_the_factor_grows_with_too_much_waiting_and_falls_without_any() -> None:
    assert learned(1.0, 0.10, quantile=0.95) == pytest.approx(1.5)
    assert learned(1.0, 0.05, quantile=0.95) == 1.0
    assert learned(1.0, 0.0, quantile=0.95) == pytest.approx(1 / 1.5)


@given(wanted=st.integers(0, 100), spare=st.integers(-100, 100), node=st.integers(0, 16))
def test_a_buffer_asks_for_the_whole_reserve_where_training_could_not_restore_it_on_one_node_less(
    wanted: int, spare: int, node: int
) -> None:
    chunks = buffer_chunks(wanted, spare=spare, node=node)
    assert chunks == (0 if wanted <= spare - node else wanted)
    assert buffer_chunks(wanted, spare=spare + 1, node=node) <= chunks


def test_constant_demand_needs_no_reserve() -> None:
    history = history_of([(step * 60.0, 12, False) for step in range(600)])
    assert reserve(history, 36_000.0, unclaimed=20, quantile=0.99) == 0


def test_a_higher_quantile_keeps_more() -> None:
    rng = random.Random(1)
    history = history_of([(step * 60.0, 10 + rng.randrange(9), step % 60 == 0) for step in range(600)])
    kept = [reserve(history, 36_000.0, unclaimed=20, quantile=quantile) for quantile in (0.5, 0.9, 0.99)]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1]
    assert forecast(history, 36_000.0).quantile(0.99) > forecast(history, 36_000.0).quantile(0.9) > 0


def test_yesterdays_morning_is_remembered_this_morning() -> None:
    day = [(minute * 60.0, 10 if 540 <= minute % 1440 < 570 and minute % 5 else 2, False) for minute in range(1440)]
    history = history_of(day)
    nine_the_next_day = DAY_SECONDS + 9 * 3600.0
    assert forecast(history, nine_the_next_day).mean > forecast(history, nine_the_next_day + 6 * 3600.0).mean


def test_the_history_is_bounded() -> None:
    history = history_of([(step * WINDOW_SECONDS, step % 7, False) for step in range(MOST_WINDOWS + 50)])
    assert len(history.windows) == MOST_WINDOWS


@pytest.mark.parametrize("seed", range(5))
def test_demand_seldom_rises_above_the_reserve(seed: int) -> None:
    """Three days of bursts: in most windows the reserve was enough; a window in which it was not counts as waiting."""
    rng, history, quantile, short = random.Random(seed), DemandHistory(), 0.9, 0
    windows = 3 * 288
    for window in range(windows):
        start, base = window * WINDOW_SECONDS, 4 + rng.randrange(3)
        history = history.seen(start, base, waits=False, quantile=quantile)
        kept = reserve(history, start, unclaimed=60, quantile=quantile)
        rise = int(rng.expovariate(0.5)) if rng.random() < 0.3 else 0
        history = history.seen(start + 60, base + rise, waits=rise > kept, quantile=quantile)
        short += rise > kept
    assert short / windows <= 1.5 * (1 - quantile)
    assert waiting_share(history.windows) <= 0.5
