"""The output of `horovodrun` without its long tracebacks, and the exit code that they contain.

horovodrun ends with 1 whatever the worker's code was. The code is in the RuntimeError of its last traceback
(`launch_gloo_elastic` in horovod/runner/gloo_run.py).
"""

import contextlib
import os
import re
import sys
import threading
from collections import deque
from typing import IO, Final

from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST

_WORKER_LINE: Final = re.compile(rb"\[\d+\](?:<(stdout|stderr)>)?:?")
_EXIT_CODE: Final = re.compile(rb"Exit code: (\d+)")
_SSH_ERROR: Final = 255
"""A script may end with it, too. horovodrun does not tell, and a lost connection is the likely one."""
_LAST_LINES: Final = 10
_DRAIN_SECONDS: Final = 2.0
"""For the last lines of a process that outlives horovodrun for a moment and keeps the pipe open."""


class StockOutput:
    """A pipe for what one horovodrun writes. A thread passes the workers' lines on as they come."""

    def __init__(self) -> None:
        """Open the pipe. Whoever started horovodrun calls `close_writer`."""
        reading, self.writer = os.pipe()
        self._code: int | None = None
        self._own: deque[bytes] = deque(maxlen=_LAST_LINES)
        stream = os.fdopen(reading, "rb")
        self._reader = threading.Thread(target=self._read, args=(stream,), name="horovodrun output", daemon=True)
        self._reader.start()

    def close_writer(self) -> None:
        """Close this process's end, once horovodrun has it."""
        os.close(self.writer)

    def worker_code(self) -> int | None:
        """The exit code of the worker that ended the job, after horovodrun's end; None if it names none."""
        self._reader.join(_DRAIN_SECONDS)
        return self._code

    @property
    def last_words(self) -> str:
        """The last lines of horovodrun itself."""
        return b"".join(self._own).decode(errors="replace")

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                if match := _WORKER_LINE.match(line):
                    out = sys.stderr if match[1] == b"stderr" else sys.stdout
                    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more; the job goes on
                        out.buffer.write(line)
                        out.flush()
                    continue
                self._own.append(line)
                if found := _EXIT_CODE.search(line):
                    code = int(found[1])
                    self._code = CONNECTION_LOST if code == _SSH_ERROR else code
