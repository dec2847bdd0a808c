"""When a durable checkpoint is due: a pure decision over seconds and steps."""

from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
"""In the place of seconds: the interval follows what checkpoints cost, and how often all copies are lost."""
RETRY_SECONDS: Final = 30.0
"""After a failed save, the next one is due at most this much later: the store may be back."""


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
