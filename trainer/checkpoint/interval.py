"""When a durable checkpoint is due: decisions over seconds and steps."""

import logging
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Final

from hvd_elastic.policy.checkpoint_interval import FIRST_SECONDS, LossHistory, checkpoint_seconds

logger = logging.getLogger(__name__)

AUTO: Final = "auto"
"""In the place of seconds: the interval follows what checkpoints cost, and how often all copies are lost."""
RETRY_SECONDS: Final = 30.0
"""After a failed save, the next one is due at most this much later: the store may be back."""

_STEPS: Final = 64
"""Undisturbed steps that tell the usual one."""
_SAVES: Final = 8
"""Saves that tell the cost: a single one may meet an evaluation or a slow reader of data."""
_LEAST_STEPS: Final = 8
_TOLD_FACTOR: Final = 1.5
"""The log tells an automatic interval that has changed by this factor since it was last told."""


def fixed_seconds(text: str | None) -> float | None:
    """The interval that the job's environment names; None: AUTO, or nothing at all. Raises ValueError."""
    return float(text) if text and text != AUTO else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Seconds and steps between the beginnings of two saves, whichever passes first. None: not for this reason."""

    seconds: float | None
    steps: int | None

    def due(self, *, steps: int, seconds: float, failed: bool) -> bool:
        """Decide, from the steps and seconds since the last save began and whether it failed."""
        if failed and seconds >= RETRY_SECONDS:
            return True
        over_time = self.seconds is not None and seconds >= self.seconds
        return over_time or (not failed and self.steps is not None and steps >= self.steps)


class AutomaticInterval:
    """Follows what a save costs, measured, and how often all copies of the state were lost.

    A save blocks training while its buffers are filled, and then slows steps down as long as bytes are hashed and sent.
    Both lengthen the time from commit to commit, so its cost is what these times have in excess of usual ones.
    """

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=_STEPS)
        self._costs: deque[float] = deque(maxlen=_SAVES)
        self._during: list[float] = []
        self._was_saving, self._started = False, 0
        self._told_seconds = FIRST_SECONDS
        self.cost_seconds: float | None = None
        """Median over the last saves; None before the first one is over, or while no step was undisturbed."""

    def note_step(self, seconds: float, *, started: int, idle: bool) -> None:
        """A step ended. `started`: saves so far; `idle`: none is under way."""
        saving = self._was_saving or started != self._started
        self._was_saving, self._started = not idle, started
        if saving:
            self._during.append(seconds)
            return
        if self._during and len(self._usual) >= _LEAST_STEPS:
            self._costs.append(max(0.0, sum(self._during) - len(self._during) * median(self._usual)))
            self.cost_seconds = median(self._costs)
        self._during.clear()
        self._usual.append(seconds)

    def drop_save(self) -> None:
        """Training has paused: what the save under way costs is not known."""
        self._during.clear()

    def adapt(self, history: LossHistory, *, save_seconds: float) -> float:
        """Return the seconds from one save to the next, of which the last one took `save_seconds`."""
        cost = self.cost_seconds
        seconds = checkpoint_seconds(history, cost_seconds=cost, save_seconds=save_seconds)
        if cost is not None and not 1 / _TOLD_FACTOR < seconds / self._told_seconds < _TOLD_FACTOR:
            self._told_seconds = seconds
            logger.info(
                "durable checkpoints each %.0f s: one costs %.2f s, and all copies of the state were lost %d times in"
                " %.1f h", seconds, cost, history.losses, history.trained_seconds / 3600,
            )  # fmt: skip
        return seconds
