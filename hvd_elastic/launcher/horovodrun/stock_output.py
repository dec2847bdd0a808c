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

_WORKER_LINE: Final = re.compile(rb"\[(\d+)\](?:<(stdout|stderr)>)?:?")
_EXIT_CODE: Final = re.compile(rb"Exit code: (\d+)")
_WORKER_END: Final = re.compile(rb"Process (\d+) exit with status code (\d+)\.")
"""A line of horovodrun's own for each worker that failed (`_exec_command_fn` in horovod/runner/gloo_run.py)."""
_RESET_LIMIT: Final = b"number of resets during elastic job exceeded limit"
_SSH_ERROR: Final = 255
"""A script may end with it, too. horovodrun does not tell, and a lost connection is the likely one."""
_OWN_WORDS: Final = b"hvd-elastic: "
_LAST_LINES: Final = 10
_LONGEST_SENTENCE: Final = 1000
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
        self._said = ""
        self._sentences: dict[int, bytes] = {}
        """The last line on stderr of each rank."""
        self._failed: dict[int, int] = {}
        """The first rank that ended with each exit code."""
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

    @property
    def worker_sentence(self) -> str:
        """The last line of the worker that ended the job, or nothing. Read it after `worker_code`."""
        rank = self._failed.get(self._code) if self._code is not None else None
        return self._sentences.get(-1 if rank is None else rank, b"").decode(errors="replace").strip()

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
                self._sinks[match[2] or b"stdout"].write(line + b"\n")
                self._note_words(int(match[1]), line[match.end() :], is_error=match[2] == b"stderr")
                continue
            if ended := _WORKER_END.match(line):
                self._failed.setdefault(_worker_code(ended[2]), int(ended[1]))
            self._own.append(line)
            self.has_reached_reset_limit |= _RESET_LIMIT in line
            if found := _EXIT_CODE.search(line):
                self._code = _worker_code(found[1])

    def _note_words(self, rank: int, line: bytes, *, is_error: bool) -> None:
        """Note what a worker says last, and that it ends for a mistake: horovodrun takes it for a failed host."""
        if is_error and line.strip():
            self._sentences[rank] = line[:_LONGEST_SENTENCE]
        if _OWN_WORDS not in line:
            return
        words = line[line.index(_OWN_WORDS) :].decode(errors="replace").strip()
        if words == MISTAKE_LINE:
            self.mistake = self._said
        else:
            self._said = words.removeprefix(_OWN_WORDS.decode())


def _worker_code(digits: bytes) -> int:
    code = int(digits)
    return CONNECTION_LOST if code == _SSH_ERROR else code
