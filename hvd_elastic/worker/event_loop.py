"""One select loop: descriptors, timers and signals, in one thread."""

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
    """A call that is due at a time of the loop's clock, in seconds; `cancel()` takes it back."""

    __slots__ = ("action", "due")

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Take the call back; harmless when it was made already."""
        self.action = None


class EventLoop:
    """Calls actions when a descriptor can be read, a timer is due or a signal came, until `stop()`.

    A signal's action runs in the loop, never in a handler. An action that raises is logged and its descriptor
    dropped: PID 1 of a pod must outlive a mistake in one of its parts.
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
        """Watch `descriptor` no more; call it before it is closed. Harmless where a failed action has dropped it."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Call `action` once, `seconds` from now."""
        timer = Timer(self._clock() + seconds, action)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def on_signal(self, number: int, action: Callable[[], None]) -> None:
        """Call `action` in the loop after signal `number` came. Several of one kind may be one call."""
        self._signals[number] = action
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(number, lambda *_: None)

    def stop(self) -> None:
        """Let `run()` return after the action that is under way."""
        self._stopped = True

    def run(self) -> None:
        """Serve until `stop()`."""
        while not self._stopped:
            self.turn()

    def close(self) -> None:
        """Close the loop's own descriptors."""
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def turn(self) -> None:
        """Wait for the next thing to happen and call what it calls for."""
        for key, _ in self._selector.select(self._patience()):
            # An action before may have closed this descriptor, and another may have got its number since.
            if not self._stopped and self._current(key):
                self._call(key)
        now = self._clock()
        while self._timers and self._timers[0][0] <= now and not self._stopped:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                guarded(timer.action)

    def _patience(self) -> float | None:
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - self._clock()) if self._timers else None

    def _current(self, key: selectors.SelectorKey) -> bool:
        return self._selector.get_map().get(key.fd) is key

    def _call(self, key: selectors.SelectorKey) -> None:
        if not guarded(key.data) and self._current(key):
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
    """Call `action`; log what it raises, and say whether it raised nothing."""
    try:
        action()
    except Exception:
        log.exception("a handler failed")
        return False
    return True
