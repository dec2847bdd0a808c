"""What a durable checkpoint takes from training, measured: pure arithmetic over the times of commits.

A save blocks training while its buffers are filled, and then slows steps down as long as bytes are hashed and sent.
Both lengthen the time from commit to commit, so the cost of a save is what these times have in excess of usual ones.
"""

from collections import deque
from statistics import median
from typing import Final

_STEPS: Final = 64
"""Undisturbed steps that tell the usual one."""
_SAVES: Final = 8
"""Saves that tell the cost: a single one may meet an evaluation or a slow reader of data."""
_LEAST_STEPS: Final = 8


class SaveCost:
    """Fed with the time of each step by the process that writes the checkpoints."""

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=_STEPS)
        self._costs: deque[float] = deque(maxlen=_SAVES)
        self._during: list[float] = []
        self.seconds: float | None = None
        """Median over the last saves; None before the first one is over, or while no step was undisturbed."""

    def note_step(self, seconds: float, *, saving: bool) -> None:
        """A step ended. `saving`: at its beginning a save was under way, or began."""
        if saving:
            self._during.append(seconds)
            return
        self._end_save()
        self._usual.append(seconds)

    def drop_save(self) -> None:
        """Training has paused: what the save under way costs is not known."""
        self._during.clear()

    def _end_save(self) -> None:
        if self._during and len(self._usual) >= _LEAST_STEPS:
            self._costs.append(max(0.0, sum(self._during) - len(self._during) * median(self._usual)))
            self.seconds = median(self._costs)
        self._during.clear()
