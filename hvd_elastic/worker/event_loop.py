"""Calls for descriptors, timers and signals, in one thread, on the standard library's `selectors`.

`selectors` waits for descriptors only, so timers and signals are added here. asyncio has all three, but it

* keeps a reader whose callback has raised. Its descriptor stays readable, so PID 1 would spin on it without end; here
  the descriptor is dropped;
* has no public call for a single turn on a clock that a test sets;
* takes 44 modules and 6.4 MiB more in every worker pod (Python 3.11, beside what the entry point imports).
"""

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_SIGNAL_BYTES: Final = 4096


class Timer:
    """A call that is due at a time of the loop's clock, in seconds, unless `cancel()` comes first."""

    __slots__ = ("action", "due")

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the call; does nothing if it was made already."""
        self.action = None


class EventLoop:
    """Calls actions when a descriptor can be read, a timer is due or a signal has come, until `stop()`.

    A signal's action runs in the loop, never in a handler. The exception of an action is logged and its descriptor
    dropped: PID 1 of a pod must survive a defect in one of its parts.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._signals: dict[int, Callable[[], None]] = {}
        self._stopped = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._deliver_signals)

    def watch(self, descriptor: int, action: Callable[[], None]) -> None:
        """Call `action` whenever `descriptor` can be read (or is at its end)."""
        self._selector.register(descriptor, selectors.EVENT_READ, action)

    def forget(self, descriptor: int) -> None:
        """Stop watching `descriptor`. Call this before it is closed. Does nothing if a failed action has dropped it."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Call `action` once, `seconds` from now."""
        timer = Timer(self._clock() + seconds, action)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def on_signal(self, number: int, action: Callable[[], None]) -> None:
        """Call `action` in the loop after signal `number`. Several signals of one kind may lead to one call."""
        self._signals[number] = action
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(number, lambda *_: None)

    def stop(self) -> None:
        """Make `run()` return after the current action."""
        self._stopped = True

    def run(self) -> None:
        """Take turns until `stop()`."""
        while not self._stopped:
            self.turn()

    def close(self) -> None:
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def turn(self) -> None:
        """Wait for the next event, and call the actions of all that are due."""
        for key, _ in self._selector.select(self._timeout()):
            # An earlier action may have closed this descriptor, and its number may belong to another one by now.
            if not self._stopped and self._is_registered(key):
                self._call(key)
        now = self._clock()
        while self._timers and self._timers[0][0] <= now and not self._stopped:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                guarded(timer.action)

    def _timeout(self) -> float | None:
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - self._clock()) if self._timers else None

    def _is_registered(self, key: selectors.SelectorKey) -> bool:
        return self._selector.get_map().get(key.fd) is key

    def _call(self, key: selectors.SelectorKey) -> None:
        if not guarded(key.data) and self._is_registered(key):
            self.forget(key.fd)

    def _deliver_signals(self) -> None:
        try:
            numbers = os.read(self._wake_read, _SIGNAL_BYTES)
        except BlockingIOError:
            return
        for number in dict.fromkeys(numbers):
            if number in self._signals and not self._stopped:
                guarded(self._signals[number])


def guarded(action: Callable[[], None]) -> bool:
    """Call `action` and log its exception. Return whether it raised none."""
    try:
        action()
    except Exception:
        log.exception("a handler failed")
        return False
    return True
