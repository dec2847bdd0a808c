"""The training process's heartbeat, and READY_PORT's answer that carries it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import HEARTBEAT_FILE, WorkerState

_LIMIT_BYTES: Final = 256
_NUMBERS: Final = range(10**18)
"""The numbers that READY_PORT's readers accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What the training process last wrote to HEARTBEAT_FILE."""

    step: int
    """-1 if there is no heartbeat."""
    age_seconds: int
    """Seconds since the file was written; -1 if there is no heartbeat."""


NO_HEARTBEAT: Final = Heartbeat(step=-1, age_seconds=-1)


def read_heartbeat(run_dir: Path, *, clock: Callable[[], float] = time.time) -> Heartbeat:
    """Read HEARTBEAT_FILE (`STEP RANK SIZE UNIX`). A missing or malformed file is NO_HEARTBEAT."""
    try:
        with (run_dir / HEARTBEAT_FILE).open("rb") as file:
            step, _, _, unix = file.read(_LIMIT_BYTES).split()
        beat = Heartbeat(step=int(step), age_seconds=max(0, int(clock() - float(unix))))
    except (OSError, ValueError, OverflowError):
        return NO_HEARTBEAT
    return beat if beat.step in _NUMBERS and beat.age_seconds in _NUMBERS else NO_HEARTBEAT


def answer_line(generation: int, state: WorkerState, heartbeat: Heartbeat) -> bytes:
    """Return the line that READY_PORT answers with."""
    return f"hvd-elastic 1 {generation} {state} {heartbeat.step} {heartbeat.age_seconds}\n".encode()
