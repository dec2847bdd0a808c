"""How this pod's last training process ended, which nobody else sees."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hvd_elastic.discovery.ledger.process_exit import ProcessExit


@dataclass(slots=True, kw_only=True)
class Ending:
    """What is known of a training process's end while it runs."""

    began: float = field(default_factory=time.monotonic)
    """When it began to train."""
    told: bool = False
    """Whether its launcher has told it to end, or is gone."""
    hung: bool = False
    """Whether it was stopped when it was to end."""


class ProcessExits:
    """Remembers the last one. Of processes that trained at the same time, the first to end: it is the cause."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: ProcessExit | None = None
        self._when = float("-inf")

    def note(self, ending: Ending, code: int, step: int) -> None:
        """A training process has ended with a shell's `code`; `step`: the last one in its heartbeat, or -1."""
        if ending.began >= self._when:
            self._when = self._clock()
            self._last = ProcessExit(seconds=0.0, code=code & 0xFF, hung=ending.hung, told=ending.told, step=step)

    @property
    def last(self) -> ProcessExit | None:
        """None if no training process has ended."""
        return self._last and replace(self._last, seconds=round(self._clock() - self._when, 3))
