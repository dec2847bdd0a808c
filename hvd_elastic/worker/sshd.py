"""Keeps sshd running beside the training process."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hvd_elastic.mpijob.contract import SSH_PORT
from hvd_elastic.system import child_processes
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.worker.event_loop import EventLoop

log = logging.getLogger(__name__)

COMMAND: Final = ("/usr/sbin/sshd", "-D", "-e", "-o", "LogLevel=ERROR")
"""In the foreground, logging to stderr, and errors only: every adoption is a login, which is not worth a line."""


def command(port: int) -> Sequence[str]:
    """What listens on `port`. An image's configuration names the usual one, and any other wins over that."""
    return COMMAND if port == SSH_PORT else (*COMMAND, "-p", str(port))


BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=10.0)
"""Between the end of one sshd and the start of the next."""

_SHORT_LIFE_SECONDS: Final = 10.0
_SHORT_LIVES_LIMIT: Final = 5


class Sshd:
    """Restarts sshd when it ends. After some short lives in a row it also calls `on_give_up`, and goes on trying."""

    def __init__(
        self,
        loop: EventLoop,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_give_up: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._command = command
        self._environment = environment
        self._on_give_up = on_give_up
        self._clock = clock
        self._short_lives = 0
        self._started = 0.0
        self.pid: int | None = None

    def start(self) -> None:
        """Start sshd. Sessions of an earlier sshd go on: they are processes of their own."""
        self._started = self._clock()
        self.pid = child_processes.spawn(self._command, environment=self._environment)

    def ended(self, code: int) -> None:
        """Note the end of sshd and start it again, later after each short life."""
        self.pid = None
        short = self._clock() - self._started < _SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 1
        log.warning("%s ended with %d and is started again", self._command[0], code)
        if self._short_lives >= _SHORT_LIVES_LIMIT:
            self._on_give_up()
        self._loop.after(BACKOFF.ceiling(self._short_lives), self.start)
