"""Asks processes whether they live: a ping to Horovod's notification service, a thread of the training process."""

import logging
import queue
from collections.abc import Callable
from typing import Final

from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.protocol.horovod_messages import HorovodMessageError, HostUnreachableError, Registration
from hvd_elastic.system.background_threads import start_thread

logger = logging.getLogger(__name__)

_AT_A_TIME: Final = 32
"""A silent process takes up a thread until its ping times out."""


class ProcessPings:
    """Pings many processes at a time. `done(number, outcome)` is called from a thread after each ping."""

    def __init__(self, done: Callable[[int, PingOutcome], None]) -> None:
        self._done = done
        self._waiting: queue.SimpleQueue[tuple[int, Registration]] = queue.SimpleQueue()
        self._threads = 0

    def ping(self, number: int, registration: Registration) -> None:
        """Ping the process `number` soon. Most jobs never do: the threads start with the first pings."""
        self._waiting.put((number, registration))
        if self._threads < _AT_A_TIME:
            self._threads += 1
            start_thread(f"ping {self._threads}", self._run, log=logger)

    def _run(self) -> None:
        while True:
            number, registration = self._waiting.get()
            outcome = PingOutcome.UNKNOWN
            try:
                outcome = _ping(number, registration)
            finally:
                self._done(number, outcome)


def _ping(number: int, registration: Registration) -> PingOutcome:
    try:
        registration.ping()
    except HorovodMessageError as error:
        logger.debug("process %d: %s", number, error)
        return PingOutcome.UNREACHABLE if isinstance(error, HostUnreachableError) else PingOutcome.SILENT
    return PingOutcome.ANSWERED
