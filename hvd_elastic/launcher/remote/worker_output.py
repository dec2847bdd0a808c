"""What the workers print: line by line, with the rank in front, and without ssh's and Horovod's own noise."""

import contextlib
import logging
import os
import re
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import IO, Final, Protocol

from hvd_elastic.launcher.remote.output_lines import OutputLines
from hvd_elastic.launcher.remote.output_sinks import LossySink
from hvd_elastic.system.background_threads import ErrorLog, start_thread
from hvd_elastic.system.plain_words import cut_middle

logger = logging.getLogger(__name__)

TAIL_LINES: Final = 25
"""Lines of a process's error output that are kept to explain its end."""

TAIL_LINE_LENGTH: Final = 4096
"""Characters of such a line: they reach a file in RUN_DIR, which has 16 MiB for all."""

BAR_SECONDS: Final = 1.0
"""Between two lines that show a progress bar: as long as it redraws itself, it is shown once in this time."""

_NOISE: Final = re.compile(
    rb"Warning: Permanently added .* to the list of known hosts\."
    rb"|mux_client_request_session: .*"
    rb"|Connection to \S+ closed by remote host\."
    rb"|\[(?>.*?operations\.cc:\d+\])(?>.*? Horovod background loop uncaught exception: ).*"
    rb"|(?:  what\(\):  )?\S+\[\d+\] has been removed from elastic job"
)
"""Whole lines of ssh and Horovod's C++ on stderr. A line of a script's own that says the like is not one of them."""


class OutputStream:
    """One output of one process. `tail` holds its last lines, `drained` is set when it has ended."""

    def __init__(
        self,
        name: str,
        sinks: tuple[LossySink, LossySink | None],
        label: Callable[[], str],
        *,
        now: Callable[[], datetime] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            name: `stdout` or `stderr`.
            sinks: where its lines go, with the rank in front; and where they go as they are.
            label: tells the process's present rank.
            now: the clock of the time stamps; None for lines without one.
            clock: any steady clock, in seconds.
        """
        self.drained = threading.Event()
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._name, self._label, self._now, self._clock = name, label, now, clock
        self._sink, self._copy = sinks
        self._lines = OutputLines()
        self._bar_is_due = float("-inf")

    def feed(self, data: bytes) -> None:
        """Take what was read; whole lines are written at once, and a progress bar if its time has come."""
        self._write(self._lines.feed(data))
        self.show_bar()

    def show_bar(self) -> bool:
        """Write the progress bar that is drawn now, if its time has come. Returns whether one waits for its time."""
        if not self._lines.has_new_bar:
            return False
        if self._clock() < self._bar_is_due:
            return True
        self._bar_is_due = self._clock() + BAR_SECONDS
        self._write([self._lines.take_bar()])
        return False

    def end(self) -> None:
        """The process has closed it."""
        self._write(self._lines.end())
        if self._copy:
            self._copy.close()
        self.drained.set()

    def _write(self, lines: Sequence[bytes]) -> None:
        kept = [line for line in lines if not (self._name == "stderr" and _NOISE.fullmatch(line))]
        if not kept:
            return
        self.tail.extend(cut_middle(line.decode(errors="replace"), TAIL_LINE_LENGTH) for line in kept[-TAIL_LINES:])
        stamp = f"{self._now():%a %b %d %H:%M:%S %Y}" if self._now else ""
        prefix = f"{stamp}[{self._label()}]<{self._name}>:".encode()
        self._sink.write(b"".join(prefix + line + b"\n" for line in kept))
        if self._copy:
            self._copy.write(b"".join(line + b"\n" for line in kept))


class ReadOutput(Protocol):
    """What the reader hands on. It calls these from its thread; see OutputStream."""

    def feed(self, data: bytes) -> None: ...
    def show_bar(self) -> bool: ...
    def end(self) -> None: ...


class OutputReader:
    """Reads the outputs of all processes in one thread: two threads for each of 64 workers would be 128."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._new: deque[tuple[IO[bytes], ReadOutput]] = deque()
        self._bars: set[ReadOutput] = set()
        """Streams with a progress bar that waits to be shown."""
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        self._errors = ErrorLog(logger)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read in a thread."""
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = start_thread("outputs", self._run, log=logger)

    def add(self, pipe: IO[bytes], stream: ReadOutput) -> None:
        """Read `pipe` to its end, then close it."""
        os.set_blocking(pipe.fileno(), False)
        self._new.append((pipe, stream))
        self._wake()

    def drain(self, timeout_seconds: float) -> None:
        """Stop once all pipes have been read to their ends. Returns then, or after the time-out; call it once."""
        self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        if self._thread is None or not self._thread.is_alive():
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # The pipe is full: the thread wakes up anyway.
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(BAR_SECONDS / 4 if self._bars else 1.0):
                if key.data is None:
                    os.read(self._wake_read, 4096)
                else:
                    self._read(key.fileobj, key.data)  # type: ignore[arg-type]
            self._bars = {stream for stream in self._bars if self._shows_bar(stream)}
            while self._new:
                pipe, stream = self._new.popleft()
                self._selector.register(pipe, selectors.EVENT_READ, stream)
            if self._stopping and len(self._selector.get_map()) == 1:
                return

    def _read(self, pipe: IO[bytes], stream: ReadOutput) -> None:
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return
        if data:
            self._bars.add(stream)
            self._hand_on(lambda: stream.feed(data))
        else:
            self._selector.unregister(pipe)
            pipe.close()
            self._bars.discard(stream)
            self._hand_on(stream.end)

    def _shows_bar(self, stream: ReadOutput) -> bool:
        try:
            return stream.show_bar()
        except Exception as error:  # noqa: BLE001 - see _hand_on
            self._errors.say("a progress bar is not shown", error)
            return False

    def _hand_on(self, work: Callable[[], None]) -> None:
        """Whatever one stream makes of its output, all of them are read on: a worker waits while its pipe is full."""
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self._errors.say("a worker's output is not shown", error)
