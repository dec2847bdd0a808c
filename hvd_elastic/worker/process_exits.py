"""How this pod's last training process ended, which nobody else sees."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.system.cgroup_memory import oom_kills

KILLED: Final = 128 + signal.SIGKILL
_TEARDOWN_SECONDS: Final = 30.0
"""From the kernel's decision to kill a process to its end: it frees its memory first, and a GPU's."""


class OomKills:
    """Whether the kernel has just killed a process of this pod for want of memory."""

    def __init__(
        self, *, count: Callable[[], int | None] = oom_kills, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = count, clock
        self._count, self._grew = count(), float("-inf")

    def look(self) -> bool | None:
        """Call it now and then, and when a process was killed. None: not known, as on cgroup v1."""
        count = self._read()
        if count is None:
            return None
        if count != self._count:
            self._count, self._grew = count, self._clock()
        return self._clock() - self._grew < _TEARDOWN_SECONDS


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

    def note(self, ending: Ending, code: int, step: int, *, oom: bool | None = None) -> None:
        """A training process has ended with a shell's `code`; `step`: the last one in its heartbeat, or -1.

        `oom`: whether the kernel has killed it for want of memory; None: not known.
        """
        if ending.began >= self._when:
            self._when = self._clock()
            self._last = ProcessExit(
                seconds=0.0, code=code & 0xFF, hung=ending.hung, told=ending.told, step=step, oom=oom
            )

    @property
    def last(self) -> ProcessExit | None:
        """None if no training process has ended."""
        return self._last and replace(self._last, seconds=round(self._clock() - self._when, 3))
