"""The heartbeat file of a worker, and the file that requests a durable checkpoint: both in the pod's RUN_DIR."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, ENV_RUN_DIR, HEARTBEAT_FILE, RUN_DIR
from hvd_elastic.system.atomic_file import replace_file

PERIOD_SECONDS: Final = 1.0
"""Shortest time between two writes of the heartbeat file."""


def run_dir() -> Path:
    """Return the folder that this process shares with its pod's entry point."""
    return Path(os.environ.get(ENV_RUN_DIR, RUN_DIR))


class HeartbeatWriter:
    """Replaces `contract.HEARTBEAT_FILE` with `STEP RANK SIZE UNIX`, at most once a second.

    Only local rank 0 writes. A machine without the folder has no entry point that reads the file, so a failure to write
    is not an error.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock, self._wall = clock, wall
        self._next = float("-inf")

    def beat(self, *, step: int, rank: int, size: int) -> bool:
        """Write the file if a second has passed. Returns whether it was written."""
        now = self._clock()
        if now < self._next or os.environ.get("HOROVOD_LOCAL_RANK", "0") != "0":
            return False
        self._next = now + PERIOD_SECONDS
        with contextlib.suppress(OSError):
            replace_file(run_dir() / HEARTBEAT_FILE, f"{step} {rank} {size} {int(self._wall())}\n")
            return True
        return False


class CheckpointRequest:
    """The file by which another process of the pod requests a durable checkpoint."""

    @property
    def path(self) -> Path:
        return run_dir() / CHECKPOINT_REQUEST_FILE

    def pending(self) -> bool:
        """Whether the file exists: one stat(2)."""
        return self.path.exists()

    def take(self) -> str:
        """Remove the file and return the reason in it; an empty string if there is no file."""
        with contextlib.suppress(OSError):
            reason = self.path.read_text(encoding="utf-8").strip()
            self.path.unlink()
            return reason or "request"
        return ""
