"""Unix seconds for the record of a job, which has no use for a clock that jumps.

A step of the wall clock (NTP sets it right, or wrong) would be a stall of an hour to whoever takes differences, or an
hour in which nothing lasts. So it is followed slowly, as adjtime(3) does: an hour takes ten, in which a minute is told
as 54 to 66 seconds.
"""

from collections.abc import Callable
from typing import Final

SLEW: Final = 0.1
"""Of the time that passes: by so much the wall clock is followed."""
MOST_SECONDS: Final = 86_400.0
"""A clock that was wrong by more than this is set right at once: years would never be caught up with."""


class SlewedClock:
    """Call it for the time. Not thread-safe."""

    def __init__(self, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        """`wall` gives Unix seconds, and may jump; `clock` may not."""
        self._wall, self._clock = wall, clock
        self._unix, self._moment = wall(), clock()

    def __call__(self) -> float:
        moment = self._clock()
        passed, self._moment = moment - self._moment, moment
        self._unix += passed
        behind = self._wall() - self._unix
        if abs(behind) <= MOST_SECONDS:
            behind = max(-SLEW * passed, min(SLEW * passed, behind))
        self._unix += behind
        return self._unix
