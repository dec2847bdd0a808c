"""What the workers print: line by line, with the rank in front, and without ssh's and Horovod's own noise."""

import contextlib
import os
import re
import selectors
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, Final, TextIO

TAIL_LINES: Final = 25
"""Lines of a process's error output that are kept to explain its end."""

_LINE_LIMIT_BYTES: Final = 1 << 20
_NOISE: Final = re.compile(
    rb"Warning: Permanently added |has been removed from elastic job|mux_client_request_session: "
    rb"|Horovod background loop uncaught exception"
    rb"|Connection to \S+ closed(?: by remote host)?\.|Shared connection to "
)


class OutputStream:
    """One output of one process. `tail` holds its last lines, `drained` is set when it has ended."""

    def __init__(self, name: str, sink: TextIO, label: Callable[[], str], copy: IO[bytes] | None = None) -> None:
        self.drained = threading.Event()
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._name, self._sink, self._label, self._copy = name, sink, label, copy
        self._rest = b""

    def feed(self, data: bytes, now: Callable[[], datetime] | None) -> None:
        """Take what was read; whole lines are written at once."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_LIMIT_BYTES:
            lines.append(self._rest)
            self._rest = b""
        self._write(lines, now)

    def end(self, now: Callable[[], datetime] | None) -> None:
        """The process has closed it."""
        if self._rest:
            self._write([self._rest], now)
        if self._copy:
            self._copy.close()
        self.drained.set()

    def _write(self, lines: list[bytes], now: Callable[[], datetime] | None) -> None:
        kept = [line.decode(errors="replace") for line in lines if not _NOISE.search(line)]
        self.tail.extend(kept)
        if not kept:
            return
        stamp = f"{now():%a %b %d %H:%M:%S %Y}" if now else ""
        prefix = f"{stamp}[{self._label()}]<{self._name}>:"
        self._sink.write("".join(f"{prefix}{line}\n" for line in kept))
        self._sink.flush()
        if self._copy:
            self._copy.write(b"".join(line.encode() + b"\n" for line in kept))
            self._copy.flush()


class OutputReader:
    """Reads the outputs of all processes in one thread: two threads for each of 64 workers would be 128."""

    def __init__(self, *, now: Callable[[], datetime] | None = None) -> None:
        """`now`: the clock of the time stamps; None for lines without one."""
        self._now = now
        self._selector = selectors.DefaultSelector()
        self._new: deque[tuple[IO[bytes], OutputStream]] = deque()
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="outputs", daemon=True)

    def start(self) -> None:
        """Read in a thread."""
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread.start()

    def add(self, pipe: IO[bytes], stream: OutputStream) -> None:
        """Read `pipe` to its end, then close it."""
        os.set_blocking(pipe.fileno(), False)
        self._new.append((pipe, stream))
        self._wake()

    def close(self, timeout_seconds: float) -> None:
        """Stop once all pipes have been read to their ends, or after the time-out."""
        self._stopping = True
        self._wake()
        self._thread.join(timeout_seconds)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # The pipe is full: the thread wakes up anyway.
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(1.0):
                if key.data is None:
                    os.read(self._wake_read, 4096)
                else:
                    self._read(key.fileobj, key.data)  # type: ignore[arg-type]
            while self._new:
                pipe, stream = self._new.popleft()
                self._selector.register(pipe, selectors.EVENT_READ, stream)
            if self._stopping and len(self._selector.get_map()) == 1:
                return

    def _read(self, pipe: IO[bytes], stream: OutputStream) -> None:
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return
        if data:
            stream.feed(data, self._now)
        else:
            self._selector.unregister(pipe)
            pipe.close()
            stream.end(self._now)


def open_rank_file(folder: str, rank: int, size: int, name: str) -> IO[bytes]:
    """Open `FOLDER/rank.07/stdout` to append; named as horovodrun names it."""
    path = Path(folder) / f"rank.{rank:0{len(str(max(size - 1, 1)))}d}"
    path.mkdir(parents=True, exist_ok=True)
    return (path / name).open("ab")
