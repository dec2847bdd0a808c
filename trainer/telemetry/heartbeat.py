"""The heartbeat file of a worker: what the launcher's side can know of the training process without asking it."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, ENV_RUN_DIR, HEARTBEAT_FILE, RUN_DIR

PERIOD_SECONDS: Final = 1.0


def run_dir() -> Path:
    """The folder that this process shares with its pod's entry point."""
    return Path(os.environ.get(ENV_RUN_DIR, RUN_DIR))


class HeartbeatWriter:
    """Replaces `contract.HEARTBEAT_FILE` with `STEP RANK SIZE UNIX`, at most once a second.

    Only the process of local rank 0 writes; a machine without the folder has no entry point to read it.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock, self._wall = clock, wall
        self._next = float("-inf")

    def beat(self, *, step: int, rank: int, size: int) -> bool:
        """Write the file if a second has gone by; whether it was written."""
        now = self._clock()
        if now < self._next or os.environ.get("HOROVOD_LOCAL_RANK", "0") != "0":
            return False
        self._next = now + PERIOD_SECONDS
        return _replace(run_dir() / HEARTBEAT_FILE, f"{step} {rank} {size} {int(self._wall())}\n")


class CheckpointRequest:
    """The file by which somebody beside this process asks for a durable checkpoint."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return run_dir() / CHECKPOINT_REQUEST_FILE

    def pending(self) -> bool:
        """Whether it is there: one stat(2)."""
        return self.path.exists()

    def take(self) -> str:
        """Remove it and give the reason in it; empty where there was none."""
        with contextlib.suppress(OSError):
            reason = self.path.read_text(encoding="utf-8").strip()
            self.path.unlink()
            return reason or "request"
        return ""


def _replace(path: Path, text: str) -> bool:
    """rename(2), so that a reader never sees half a line."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        part.write_text(text, encoding="utf-8")
        part.replace(path)
        return True
    return False
