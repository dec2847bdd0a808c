"""How a worker's pod leaves: it asks the training process to checkpoint, and ends when that has left the job."""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import (
    CHECKPOINT_REQUEST_FILE,
    FIGURES_FILE,
    HEARTBEAT_FILE,
    LAUNCHER_GONE_FILE,
    LEAVE_FILE,
    NO_SUCCESSOR_FILE,
)
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.worker.event_loop import EventLoop, Timer

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 0.03
"""From the last exit code to the pod's end: time for `RUN_DIR/adopt` to end with that code and for sshd to send it."""


REQUEST_GAP_SECONDS: Final = 10.0
"""At least, between two checkpoints that others ask for: training waits for each of them."""


def announce(run_dir: Path, reason: str) -> None:
    """Write LEAVE_FILE and CHECKPOINT_REQUEST_FILE for the training process.

    The order matters: a request without LEAVE_FILE means that the whole job waits for the checkpoint.
    """
    write_line(run_dir / LEAVE_FILE, reason)
    request_checkpoint(run_dir, reason)


def announce_launcher_gone(run_dir: Path) -> None:
    """Tell the training process that nobody will give it a place: it ends when its state is stored."""
    reason = "the launcher is gone"
    write_line(run_dir / LAUNCHER_GONE_FILE, reason)
    announce(run_dir, reason)


def announce_no_successor(run_dir: Path) -> None:
    """Tell the training process, which leaves, that no other worker can take its state over. The word soon expires."""
    path = run_dir / NO_SUCCESSOR_FILE
    if not path.exists():
        log.info("no other worker can take the state over: training need not wait for one")
    write_line(path, "no other worker can take the state over")


class CheckpointRequests:
    """Passes others' requests for checkpoints on, one in REQUEST_GAP_SECONDS. One that comes sooner has to wait."""

    def __init__(self, loop: EventLoop, run_dir: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop, self._run_dir, self._clock = loop, run_dir, clock
        self._next = -math.inf
        """When the next request may be passed on."""
        self._waiting: Timer | None = None

    def take(self, reason: str) -> None:
        """Pass a request on, now or when its time has come. While one waits, others are the same."""
        if self._waiting is not None:
            return
        wait_seconds = self._next - self._clock()
        if wait_seconds > 0:
            self._waiting = self._loop.after(wait_seconds, lambda: self._pass_on(reason))
        else:
            self._pass_on(reason)

    def forget(self) -> None:
        """Drop the request that waits: the process that it was for has left."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _pass_on(self, reason: str) -> None:
        self._waiting = None
        self._next = self._clock() + REQUEST_GAP_SECONDS
        log.info("a checkpoint was requested: %s", reason)
        request_checkpoint(self._run_dir, reason)


def request_checkpoint(run_dir: Path, reason: str) -> None:
    """Ask for a durable checkpoint at the next commit. An earlier request stays as it is."""
    path = run_dir / CHECKPOINT_REQUEST_FILE
    if not path.exists():
        write_line(path, reason)


def clean(run_dir: Path) -> None:
    """Remove what an earlier process said, and what was asked of it: neither concerns the next one."""
    asked = (CHECKPOINT_REQUEST_FILE, LEAVE_FILE, LAUNCHER_GONE_FILE, NO_SUCCESSOR_FILE)
    for name in (HEARTBEAT_FILE, FIGURES_FILE, *asked):
        (run_dir / name).unlink(missing_ok=True)


def write_line(path: Path, line: str) -> None:
    """Replace `path`. A full disk is only logged: it must not keep the pod from ending well."""
    try:
        replace_file(path, line + "\n")
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
