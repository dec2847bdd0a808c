"""Keeps sshd running beside the training process."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hvd_elastic.worker import child_processes
from hvd_elastic.worker.event_loop import EventLoop

log = logging.getLogger(__name__)

COMMAND: Final = ("/usr/sbin/sshd", "-D", "-e", "-o", "LogLevel=ERROR")
"""In the foreground, to stderr, and only what an operator must know: every adoption is a login, and no news."""

_SHORT_LIFE_SECONDS: Final = 10.0
_SHORT_LIVES_LIMIT: Final = 5
_DELAY_SECONDS: Final = 0.2
_LONGEST_DELAY_SECONDS: Final = 10.0


class Sshd:
    """Starts sshd again when it dies. After some short lives in a row it calls `on_give_up`, and goes on trying."""

    def __init__(
        self,
        reactor: EventLoop,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_give_up: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reactor = reactor
        self._command = command
        self._environment = environment
        self._on_give_up = on_give_up
        self._clock = clock
        self._short_lives = 0
        self._started = 0.0
        self.pid: int | None = None

    def start(self) -> None:
        """Start it. Sessions of an earlier one go on: they are processes of their own."""
        self._started = self._clock()
        self.pid = child_processes.spawn(self._command, environment=self._environment)

    def ended(self, code: int) -> None:
        """Take its end and start it again, later with each short life."""
        self.pid = None
        short = self._clock() - self._started < _SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 1
        log.warning("%s ended with %d and is started again", self._command[0], code)
        if self._short_lives >= _SHORT_LIVES_LIMIT:
            self._on_give_up()
        delay = min(_LONGEST_DELAY_SECONDS, _DELAY_SECONDS * 2.0 ** min(self._short_lives - 1, 10))
        self._reactor.after(delay, self.start)
