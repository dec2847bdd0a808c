"""What the stock `horovodrun` prints, less the wall of traceback, and the exit code that it hides in there.

horovodrun ends with 1 whatever a worker's code was; the code stands in the RuntimeError of its last traceback
(`launch_gloo_elastic` in horovod/runner/gloo_run.py).
"""

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Final

_WORKER_LINE: Final = re.compile(rb"\[\d+\](?:<(stdout|stderr)>)?:?")
_EXIT_CODE: Final = re.compile(rb"Exit code: (\d+)")
_LAST_LINES: Final = 10
_DRAIN_SECONDS: Final = 2.0
"""For the last lines of a process that outlives horovodrun for a moment and holds its end of the pipe."""


@dataclass(slots=True, kw_only=True)
class StockOutput:
    """Takes horovodrun's output, passes the workers' lines on."""

    descriptor: int
    """Where horovodrun writes."""
    _code: int | None = None
    _own: deque[bytes] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    def read(self, stream: IO[bytes]) -> None:
        """Pass worker lines on, keep the others, until the end."""
        for line in stream:
            if match := _WORKER_LINE.match(line):
                out = sys.stderr if match[1] == b"stderr" else sys.stdout
                out.buffer.write(line)
                out.flush()
                continue
            self._own.append(line)
            if found := _EXIT_CODE.search(line):
                self._code = int(found[1])

    def exit_code(self, launcher_code: int) -> int:
        """The worker's exit code where its end was the reason; else horovodrun's own, with its last lines."""
        if launcher_code != 1 or self._code is None:
            if launcher_code:
                sys.stderr.write(b"".join(self._own).decode(errors="replace"))
            return launcher_code
        return self._code


@contextmanager
def stock_output() -> Iterator[StockOutput]:
    """A pipe for horovodrun's output and the thread that reads it; on the way out all of it has been read."""
    reading, writing = os.pipe()
    output = StockOutput(descriptor=writing)
    stream = os.fdopen(reading, "rb")
    reader = threading.Thread(target=output.read, args=(stream,), name="horovodrun output", daemon=True)
    reader.start()
    try:
        yield output
    finally:
        os.close(writing)
        reader.join(_DRAIN_SECONDS)
