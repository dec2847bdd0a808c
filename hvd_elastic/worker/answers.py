"""What READY_PORT answers: the worker's own line, and its report of what its training processes have written."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.mpijob.contract import (
    FIGURES_FILE,
    FIGURES_MAX_BYTES,
    HEARTBEAT_FILE,
    PACE_FILE,
    PACE_MAX_BYTES,
    PACES_MAX_BYTES,
    WAIT_FILE,
    WAITS_MAX_BYTES,
    WorkerState,
)

REPORT_REQUESTS: Final = frozenset({"report", "figures", "waits", "last-exit"})
"""Sidecars of 0.1 ask for one part at a time, for one release more."""
_FRESH_SECONDS: Final = 10.0
"""A WAIT_FILE is replaced every second while it is true; a process that was killed leaves its last."""
_WAIT_BYTES: Final = 1024
_HEARTBEAT_BYTES: Final = 256
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
            step, _, _, unix = file.read(_HEARTBEAT_BYTES).split()
        beat = Heartbeat(step=int(step), age_seconds=max(0, int(clock() - float(unix))))
    except (OSError, ValueError, OverflowError):
        return NO_HEARTBEAT
    return beat if beat.step in _NUMBERS and beat.age_seconds in _NUMBERS else NO_HEARTBEAT


def own_line(generation: int, state: WorkerState, heartbeat: Heartbeat, uid: str = "") -> bytes:
    """Return the line that each connection gets. `uid`: the pod's, if its address does not tell it from others."""
    line = f"hvd-elastic 1 {generation} {state} {heartbeat.step} {heartbeat.age_seconds} {uid}"
    return f"{line.rstrip()}\n".encode()


def report_answer(
    request: str, run_dir: Path, slots: int, last_exit: ProcessExit | None, *, clock: Callable[[], float] = time.time
) -> bytes:
    """Return the line that answers one of REPORT_REQUESTS. `slots`: processes that may have files of their own."""
    now = clock()
    waits = [_object(run_dir / f"{WAIT_FILE}.{rank}", _WAIT_BYTES, now) for rank in range(slots)]
    paces = [_object(run_dir / f"{PACE_FILE}.{rank}", PACE_MAX_BYTES) for rank in range(slots)]
    parts = {
        "unix": b"%.3f" % now,
        "figures": _object(run_dir / FIGURES_FILE, FIGURES_MAX_BYTES) or b"null",
        "waits": _array([wait for wait in waits if wait], WAITS_MAX_BYTES),
        "paces": _array([pace for pace in paces if pace], PACES_MAX_BYTES),
        "last_exit": last_exit.to_json() if last_exit else b"null",
    }
    if request != "report":
        return parts[request.replace("-", "_")] + b"\n"
    return b"{%b}\n" % b",".join(b'"%b":%b' % (name.encode(), part) for name, part in parts.items())


def _array(objects: list[bytes], most_bytes: int) -> bytes:
    while len(array := b"[%b]" % b",".join(objects)) >= most_bytes:
        objects.pop()
    return array


def _object(path: Path, most_bytes: int, now: float | None = None) -> bytes:
    """The file if it is one line with a JSON object, not too long and fresh at `now`, if that is given; else nothing.

    One from the future is not fresh: the clock was set back after it was written.

    The script could write anything there, and anybody may ask: nothing else of the pod's files must come out.
    """
    try:
        with path.open("rb") as file:
            line, written = file.read(most_bytes + 1), os.fstat(file.fileno()).st_mtime
        is_fresh = now is None or abs(now - written) < _FRESH_SECONDS
        is_whole = len(line) <= most_bytes and line.endswith(b"\n") and line.count(b"\n") == 1 and is_fresh
        return line[:-1] if is_whole and isinstance(json.loads(line.decode()), dict) else b""
    except (OSError, ValueError, RecursionError):
        return b""
