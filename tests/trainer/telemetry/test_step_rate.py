"""The rate of steps, over a clock that the test sets."""

import pytest

from hvd_elastic.trainer.telemetry.step_rate import WINDOW_SECONDS, StepRate


def marked(*marks: tuple[float, int]) -> StepRate:
    rate = StepRate()
    for now, step in marks:
        rate.mark(now, step)
    return rate


def test_there_is_no_rate_before_two_steps() -> None:
    assert not StepRate().has_begun
    assert StepRate().per_second is None
    assert marked((5.0, 1)).per_second is None
    assert marked((5.0, 1)).has_begun
    assert marked((5.0, 1), (5.0, 2)).per_second is None, "a clock that has not moved"


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    assert marked((0.0, 0), (2.0, 20)).per_second == 10.0
    slow = [(float(second), second) for second in range(100)]
    fast = [(99.0 + second, 99 + 5 * second) for second in range(1, int(WINDOW_SECONDS) + 1)]
    assert marked(*slow, *fast).per_second == 5.0
    assert 1.0 < (marked(*slow, *fast[:15]).per_second or 0.0) < 5.0


def test_steps_that_take_longer_than_the_window_have_a_rate() -> None:
    assert marked((0.0, 1), (100.0, 2), (250.0, 3)).per_second == pytest.approx(1 / 150)


def test_a_pause_is_not_part_of_it() -> None:
    rate = marked((0.0, 0), (1.0, 10))
    rate.restart()
    assert rate.per_second is None
    rate.mark(61.0, 11)
    assert rate.per_second is None, "the first step after a pause includes it"
    rate.mark(63.0, 15)
    assert rate.per_second == 2.0
