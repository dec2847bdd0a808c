"""The record's time: it follows the wall clock, and never jumps."""

import pytest

from hvd_elastic.discovery.sidecar.record.slewed_clock import SlewedClock


class Clocks:
    def __init__(self) -> None:
        self.passed, self.step = 0.0, 0.0
        self.told = SlewedClock(lambda: 1e9 + self.passed + self.step, lambda: self.passed)

    def wait(self, seconds: float) -> float:
        """Let time pass; return how much of it is told."""
        before = self.told()
        self.passed += seconds
        return self.told() - before


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_is_followed_by_a_tenth_of_the_time(step: float) -> None:
    clocks = Clocks()
    assert clocks.wait(60.0) == 60.0
    clocks.step = step
    assert clocks.wait(0.0) == 0.0
    assert clocks.wait(60.0) == pytest.approx(60.0 + 6.0 * (1 if step > 0 else -1))
    for _ in range(600):
        assert 54.0 <= clocks.wait(60.0) <= 66.0 + 1e-6
    assert clocks.told() == 1e9 + clocks.passed + step
    assert clocks.wait(60.0) == 60.0


def test_a_clock_that_was_years_off_is_set_at_once() -> None:
    clocks = Clocks()
    clocks.step = 56 * 365.25 * 86400
    clocks.told()
    assert clocks.told() == 1e9 + clocks.step
