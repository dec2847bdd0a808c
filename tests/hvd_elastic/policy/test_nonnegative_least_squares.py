"""Least squares without negative values."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.nonnegative_least_squares import nonnegative_least_squares

NUMBERS = st.floats(-10, 10, allow_subnormal=False)


def test_an_exact_solution_is_found() -> None:
    rows = [(1.0, 0.0, 2.0), (0.0, 1.0, 1.0), (1.0, 1.0, 0.0), (2.0, 1.0, 1.0)]
    wanted = (0.5, 2.0, 3.0)
    targets = [sum(a * b for a, b in zip(row, wanted, strict=True)) for row in rows]
    assert nonnegative_least_squares(rows, targets) == pytest.approx(wanted)


def test_a_negative_value_becomes_zero_and_the_others_make_up_for_it() -> None:
    # Plain least squares gives (2, -1); with the second at zero, the first is the mean of the targets.
    assert nonnegative_least_squares([(1.0, 0.0), (1.0, 1.0)], [2.0, 1.0]) == pytest.approx((1.5, 0.0))


def test_of_columns_that_say_the_same_the_first_is_used() -> None:
    assert nonnegative_least_squares([(1.0, 2.0, 1.0)], [3.0]) == pytest.approx((3.0, 0.0, 0.0))


def test_where_no_value_helps_all_are_zero() -> None:
    assert nonnegative_least_squares([(1.0, 2.0)], [-1.0]) == (0.0, 0.0)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=6).flatmap(
        lambda rows: st.tuples(st.just(rows), st.lists(NUMBERS, min_size=len(rows), max_size=len(rows)))
    )
)
def test_no_value_is_negative_and_no_small_change_is_better(
    system: tuple[list[tuple[float, float, float]], list[float]],
) -> None:
    rows, targets = system
    values = nonnegative_least_squares(rows, targets)
    assert min(values) >= 0
    least = rest_of(rows, targets, values)
    for at in range(3):
        for change in (-0.01, 0.01):
            other = [value + change * (at == index) for index, value in enumerate(values)]
            if min(other) >= 0:
                assert rest_of(rows, targets, other) >= least - 1e-6 * (1 + sum(target**2 for target in targets))


def rest_of(rows: list[tuple[float, float, float]], targets: list[float], values: Sequence[float]) -> float:
    """The sum of squared differences."""
    sums = [sum(a * b for a, b in zip(row, values, strict=True)) for row in rows]
    return sum(((one - target) ** 2 for one, target in zip(sums, targets, strict=True)), 0.0)
