"""Trying again: how often and after how long is a value, the waiting is passed in."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from hvd_elastic.trainer.checkpoint.errors import StoreError

T = TypeVar("T")


class PassingError(StoreError):
    """A failure that may be gone the next time: throttling, a cut connection, a time-out."""


class StoppedError(StoreError):
    """The tier is being closed: what was under way is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential, capped, with full jitter: many jobs that were throttled together do not come back together."""

    attempts: int = 8
    first_seconds: float = 0.2
    most_seconds: float = 10.0

    def delays(self, uniform: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt: `attempts - 1` of them."""
        for attempt in range(self.attempts - 1):
            yield uniform(0.0, min(self.most_seconds, self.first_seconds * 2**attempt))


def persist(action: Callable[[], T], *, backoff: Backoff, sleep: Callable[[float], object]) -> T:
    """Return what `action` returns, trying again after each PassingError; the last one is raised as it came."""
    for delay in backoff.delays():
        try:
            return action()
        except PassingError:
            sleep(delay)
    return action()
