"""The output of the stock `horovodrun` without its long tracebacks, and the exit code that they contain.

horovodrun ends with 1 whatever the worker's code was. The code is in the RuntimeError of its last traceback
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
"""For the last lines of a process that outlives horovodrun for a moment and keeps the pipe open."""


@dataclass(slots=True, kw_only=True)
class StockOutput:
    """Reads horovodrun's output and passes the workers' lines on."""

    descriptor: int
    """The end of the pipe to which horovodrun writes."""
    _code: int | None = None
    _own: deque[bytes] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    def read(self, stream: IO[bytes]) -> None:
        """Read to the end: pass the workers' lines on, keep the last of the others."""
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
        """The worker's exit code if a worker ended the job; else horovodrun's own, after printing its last lines."""
        if launcher_code != 1 or self._code is None:
            if launcher_code:
                sys.stderr.write(b"".join(self._own).decode(errors="replace"))
            return launcher_code
        return self._code


@contextmanager
def stock_output() -> Iterator[StockOutput]:
    """Open a pipe for horovodrun's output and read it in a thread; on the way out all of it has been read."""
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
