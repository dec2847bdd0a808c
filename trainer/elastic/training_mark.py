"""Word for this pod's entry point that this process is in its training function (`contract.TRAINING_FILE`).

A process that ends with 0 says that the job is done. Only the entry point sees every end, `os._exit` among them, and it
cannot know what the process was at.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import TRAINING_FILE
from hvd_elastic.trainer.telemetry.heartbeat import run_dir

_LINE: Final = "{rank} {size} {step} {ordered:d}\n"
_WIDTH: Final = 64
"""Each line has it, so that a shorter one leaves nothing of the one before."""


class TrainingMarkWriter:
    """The file of one process. A machine without the folder has no entry point to read it."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._rank, self._size, self._step = 0, 1, -1
        self.is_ordered = False
        """Whether this process has received SIGTERM."""

    def enter(self, rank: int, size: int) -> None:
        """Begin: this process is about to call its training function, in a world of `size`."""
        self._rank, self._size = rank, size
        if self._descriptor is None:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._write()

    def note_step(self, step: int) -> None:
        """A commit. Costs a microsecond: the file stays open."""
        self._step = step
        self._write()

    def note_order(self) -> None:
        """SIGTERM has come. Safe in a signal handler of Python."""
        self.is_ordered = True
        self._write()

    def leave(self) -> None:
        """End: all ranks have left the training function, or this one ends by an error that says so itself."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            with contextlib.suppress(OSError):
                _path().unlink()

    def _write(self) -> None:
        if self._descriptor is not None:
            line = _LINE.format(rank=self._rank, size=self._size, step=self._step, ordered=self.is_ordered)
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, line.rjust(_WIDTH).encode(), 0)


def _path() -> Path:
    return run_dir() / f"{TRAINING_FILE}.{os.getpid()}"


THIS_PROCESS: Final = TrainingMarkWriter()
"""A process ends once."""
