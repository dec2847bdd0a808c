"""How long to wait before something is tried again."""

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom
from typing import Final

_MOST_DOUBLINGS = 30
"""2.0**failures would overflow a float after 1023 failures."""

jitter: Final[Callable[[], float]] = SystemRandom().random
"""Uniform in [0, 1). Not `random.random`: its generator is the training script's, whose draws no retry may shift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff: the wait doubles with each failure in a row, up to a limit."""

    first_seconds: float
    """The wait after the first failure."""
    most_seconds: float
    """The longest wait."""

    def ceiling(self, failures: int) -> float:
        """Seconds to wait after `failures` failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        return float(min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)))

    def with_jitter(self, failures: int, random: Callable[[], float] = jitter, *, least: float = 0.0) -> float:
        """`ceiling` times a random factor between `least` and 1, so that many clients do not come back together.

        Args:
            failures: failures in a row.
            random: uniform in [0, 1).
            least: 0 is full jitter, 0.5 equal jitter
                (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
        """
        return self.ceiling(failures) * (least + random() * (1.0 - least))
