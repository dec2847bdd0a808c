"""What a resize costs, and from which time on it pays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.growth import expected_hold_seconds, growth_pays, payback_seconds, resize_discount
from tests.hvd_elastic.policy.demands import demand

ages = st.floats(0, 1e6)


@given(age=ages, resizes=st.integers(0, 1000), stall=st.floats(0, 600))
def test_a_discount_is_a_share_and_falls_with_each_resize(age: float, resizes: int, stall: float) -> None:
    now, later = (resize_discount(age_seconds=age, resizes=n, stall_seconds=stall) for n in (resizes, resizes + 1))
    assert 0.0 <= later <= now <= 1.0


@given(age=st.floats(1, 1e6), resizes=st.integers(0, 50), stall=st.floats(0.01, 10))
def test_an_older_job_is_discounted_less(age: float, resizes: int, stall: float) -> None:
    young = resize_discount(age_seconds=age, resizes=resizes, stall_seconds=stall)
    assert resize_discount(age_seconds=2 * age, resizes=resizes, stall_seconds=stall) >= young


@pytest.mark.parametrize(("grow", "shrink", "wanted"), [(0.34, 0.24, 2.0), (30.0, 30.0, 210.0)])
def test_three_to_four_workers_pays_after_the_published_time(grow: float, shrink: float, wanted: float) -> None:
    assert payback_seconds(3, 4, stall_grow_seconds=grow, stall_shrink_seconds=shrink) == pytest.approx(
        wanted, rel=0.02
    )


@given(before=st.floats(1, 1e6), gain=st.floats(1, 1e6), grow=st.floats(0, 60), shrink=st.floats(0, 60))
def test_after_the_payback_time_as_much_was_done_as_without_growing(
    before: float, gain: float, grow: float, shrink: float
) -> None:
    """Work at the larger size, less both standstills, is what the smaller size would have done in the same time."""
    after = before + gain
    hold = payback_seconds(before, after, stall_grow_seconds=grow, stall_shrink_seconds=shrink)
    assert after * hold - before * grow - after * shrink == pytest.approx(before * hold, rel=1e-6, abs=1e-3)


def test_a_size_that_is_no_faster_never_pays() -> None:
    assert payback_seconds(4, 4, stall_grow_seconds=0, stall_shrink_seconds=0) == float("inf")


def test_a_job_that_waits_has_nothing_to_lose() -> None:
    assert growth_pays(demand(workers=0), 1)


def test_a_job_that_is_resized_every_second_does_not_grow() -> None:
    restless = demand(workers=3, age_seconds=1000.0, resizes=1000)
    assert expected_hold_seconds(restless) < 2
    assert not growth_pays(restless, 4)
    assert growth_pays(demand(workers=3, age_seconds=1000.0, resizes=10), 4)
