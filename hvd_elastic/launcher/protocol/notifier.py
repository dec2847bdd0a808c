"""Sends the notifications that the hosts have changed."""

import logging
import queue
from collections.abc import Callable

from hvd_elastic.launcher.protocol.horovod_messages import HorovodMessageError, NoticeStamps, Registration
from hvd_elastic.system.background_threads import start_thread

logger = logging.getLogger(__name__)


class Notifier:
    """Notifies coordinators from a thread of its own, because a lost host can hold a notification up for seconds."""

    def __init__(self, done: Callable[[bool], None]) -> None:
        """`done(delivered)` is called from the thread after each notification."""
        self._done = done
        self._waiting: queue.SimpleQueue[Registration | None] = queue.SimpleQueue()
        self._stamps = NoticeStamps()

    def start(self) -> None:
        start_thread("notices", self._run, log=logger)

    def notify(self, registration: Registration) -> None:
        """Notify this worker. Of several that wait only the newest is notified."""
        self._waiting.put(registration)

    def stop(self) -> None:
        """Let the thread end after the notification that it is sending."""
        self._waiting.put(None)

    def _run(self) -> None:
        while True:
            registration = self._waiting.get()
            while not self._waiting.empty():
                registration = self._waiting.get()
            if registration is None:
                return
            delivered = False
            try:
                delivered = self._send(registration)
            finally:
                self._done(delivered)  # whoever waits for it must not wait for ever

    def _send(self, registration: Registration) -> bool:
        try:
            registration.notify(self._stamps.next_stamp())
        except HorovodMessageError as error:
            logger.debug("%s", error)
            return False
        return True
