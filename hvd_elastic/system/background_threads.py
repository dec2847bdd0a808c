"""Threads that no unexpected error ends unseen: it is said in one line, and the thread's work is started again.

Where nothing can be trusted without a thread, its error ends the process instead (the sidecar's `ThreadCrash`); where
somebody waits for a thread's result, he gets the error. All others are started here.
"""

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.system.backoff import Backoff

RESTART: Final = Backoff(first_seconds=1.0, most_seconds=60.0)
"""Between a failure and the next start. Work that lasted longer than the longest wait begins anew with the first."""

_MAX_WORDS: Final = 300
"""Characters of an error's own message."""


class ErrorLog:
    """Says unexpected errors of one part of a process. Safe from any thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: Counter[tuple[str, str]] = Counter()
        """By type and line of code: a message may differ each time."""

    def say(self, what: str, error: BaseException) -> None:
        """Log `what` and the error in one line: the first of a kind, the second, the fourth, the eighth and so on."""
        kind = type(error).__name__, _place(error)
        self._counts[kind] += 1
        count = self._counts[kind]
        if count & (count - 1) == 0:
            times = f" ({count} times so far)" if count > 1 else ""
            self._log.warning("%s: %s%s", what, error_words(error), times)
        self._log.debug("%s", what, exc_info=error)


def error_words(error: BaseException) -> str:
    """Return an error's type, its message and where it was raised, in one line."""
    message = " ".join(str(error).split())[:_MAX_WORDS]
    return ": ".join(filter(None, (type(error).__name__, message))) + f" ({_place(error)})"


def _place(error: BaseException) -> str:
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return "raised nowhere"
    frame, line = frames[-1]
    return f"{Path(frame.f_code.co_filename).name}:{line}"


def keep_running(
    name: str,
    work: Callable[[], None],
    *,
    log: logging.Logger,
    stopped: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Call `work` until it returns. After an error say so, wait (RESTART), and call it again, unless `stopped` is set.

    `name` is what the line in the log calls it, and `log` where that is written.
    """
    errors, stopped, failures = ErrorLog(log), stopped or threading.Event(), 0
    while not stopped.is_set():
        began = clock()
        try:
            work()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the work must go on
            failures = 1 if clock() - began > RESTART.most_seconds else failures + 1
            errors.say(f"the thread {name} has failed and is started again", error)
        else:
            return
        stopped.wait(RESTART.with_jitter(failures, least=0.5))


def start_thread(
    name: str, work: Callable[[], None], *, log: logging.Logger, stopped: threading.Event | None = None
) -> threading.Thread:
    """Start a daemon thread of this name that keeps `work` running. See `keep_running`."""

    def run() -> None:
        keep_running(name, work, log=log, stopped=stopped)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
