"""The output of `horovodrun` without its long tracebacks, and the exit code that they contain.

horovodrun ends with 1 whatever the worker's code was. The code is in the RuntimeError of its last traceback
(`launch_gloo_elastic` in horovod/runner/gloo_run.py). So is the message that the reset limit was reached
(`RESET_LIMIT_EXCEEDED_MESSAGE` in horovod/runner/elastic/constants.py).
"""

import os
import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.remote.output_lines import OutputLines
from hvd_elastic.launcher.remote.output_sinks import LossySink, StreamSink
from hvd_elastic.launcher.remote.worker_output import BAR_SECONDS, OutputReader
from hvd_elastic.mpijob.contract import MISTAKE_LINE

_WORKER_LINE: Final = re.compile(rb"\[\d+\](?:<(stdout|stderr)>)?:?")
_EXIT_CODE: Final = re.compile(rb"Exit code: (\d+)")
_RESET_LIMIT: Final = b"number of resets during elastic job exceeded limit"
_SSH_ERROR: Final = 255
"""A script may end with it, too. horovodrun does not tell, and a lost connection is the likely one."""
_OWN_WORDS: Final = b"hvd-elastic: "
_LAST_LINES: Final = 10
_DRAIN_SECONDS: Final = 2.0
"""For the last lines of a process that outlives horovodrun for a moment and keeps the pipe open."""


class StockOutput:
    """A pipe for what one horovodrun writes. A thread passes the workers' lines on as they come."""

    def __init__(self) -> None:
        """Open the pipe. Whoever started horovodrun calls `close_writer`."""
        reading, self.writer = os.pipe()
        self._code: int | None = None
        self.has_reached_reset_limit = False
        """Whether horovodrun says that it ends for this. Read it after `worker_code`."""
        self.mistake: str | None = None
        """What a worker has said is wrong with the script, before it ended with Exit.SCRIPT_MISTAKE."""
        self.worker_said = ""
        """The last line that a worker has written to stderr. Read it after `worker_code`."""
        self._said = ""
        self._own: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._lines = OutputLines()
        self._bar_is_due = float("-inf")
        self._sinks = {
            b"stdout": LossySink("stdout", StreamSink(sys.stdout)),
            b"stderr": LossySink("stderr", StreamSink(sys.stderr)),
        }
        self._reader = OutputReader()
        self._reader.start()
        self._reader.add(os.fdopen(reading, "rb"), self)

    def close_writer(self) -> None:
        """Close this process's end, once horovodrun has it."""
        os.close(self.writer)

    def worker_code(self) -> int | None:
        """The exit code of the worker that ended the job, or None. Called once, after horovodrun's end."""
        self._reader.drain(_DRAIN_SECONDS)
        return self._code

    def show_last_words(self) -> None:
        """Print the last lines of horovodrun itself."""
        self._sinks[b"stderr"].write(self.last_words)

    @property
    def last_words(self) -> bytes:
        """The last lines of horovodrun itself."""
        return b"".join(line + b"\n" for line in self._own)

    # --- What the reader calls ---------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """See OutputStream."""
        self._take(self._lines.feed(data))
        self.show_bar()

    def show_bar(self) -> bool:
        """See OutputStream."""
        if not self._lines.has_new_bar:
            return False
        if time.monotonic() < self._bar_is_due:
            return True
        self._bar_is_due = time.monotonic() + BAR_SECONDS
        self._take([self._lines.take_bar()])
        return False

    def end(self) -> None:
        """See OutputStream."""
        self._take(self._lines.end())

    def _take(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if match := _WORKER_LINE.match(line):
                self._sinks[match[1] or b"stdout"].write(line + b"\n")
                self._note_words(line[match.end() :], is_error=match[1] == b"stderr")
                continue
            self._own.append(line)
            self.has_reached_reset_limit |= _RESET_LIMIT in line
            if found := _EXIT_CODE.search(line):
                code = int(found[1])
                self._code = CONNECTION_LOST if code == _SSH_ERROR else code

    def _note_words(self, line: bytes, *, is_error: bool) -> None:
        """Note what a worker says. If it ends for a mistake horovodrun takes it for a failed host, and says nothing."""
        if is_error and line.strip():
            self.worker_said = line.decode(errors="replace").strip()
        if _OWN_WORDS not in line:
            return
        words = line[line.index(_OWN_WORDS) :].decode(errors="replace").strip()
        if words == MISTAKE_LINE:
            self.mistake = self._said
        else:
            self._said = words.removeprefix(_OWN_WORDS.decode())
