"""READY_PORT's answer to `report`: what this pod's training processes have written, and how the last one ended."""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.mpijob.contract import FIGURES_FILE, FIGURES_MAX_BYTES, WAIT_FILE, WAITS_MAX_BYTES

REQUESTS: Final = frozenset({"report", "figures", "waits", "last-exit"})
"""Sidecars of 0.1 ask for one part at a time, for one release more."""
_FRESH_SECONDS: Final = 10.0
"""A WAIT_FILE is replaced every second while it is true; a process that was killed leaves its last."""
_WAIT_BYTES: Final = 1024


def report_answer(
    request: str, run_dir: Path, slots: int, last_exit: ProcessExit | None, *, clock: Callable[[], float] = time.time
) -> bytes:
    """Return the line that answers one of REQUESTS. `slots`: processes that may have a WAIT_FILE."""
    since = clock() - _FRESH_SECONDS
    waits = [_object(run_dir / f"{WAIT_FILE}.{rank}", _WAIT_BYTES, since) for rank in range(slots)]
    parts = {
        "figures": _object(run_dir / FIGURES_FILE, FIGURES_MAX_BYTES) or b"null",
        "waits": _array([wait for wait in waits if wait]),
        "last_exit": last_exit.to_json() if last_exit else b"null",
    }
    if request != "report":
        return parts[request.replace("-", "_")] + b"\n"
    return b"{%b}\n" % b",".join(b'"%b":%b' % (name.encode(), part) for name, part in parts.items())


def _array(objects: list[bytes]) -> bytes:
    while len(array := b"[%b]" % b",".join(objects)) >= WAITS_MAX_BYTES:
        objects.pop()
    return array


def _object(path: Path, most_bytes: int, since: float = -math.inf) -> bytes:
    """The file if it is one line with a JSON object, not too long and not older than `since`, else nothing.

    The script could write anything there, and anybody may ask: nothing else of the pod's files must come out.
    """
    try:
        with path.open("rb") as file:
            line, written = file.read(most_bytes + 1), os.fstat(file.fileno()).st_mtime
        is_whole = len(line) <= most_bytes and line.endswith(b"\n") and line.count(b"\n") == 1 and written > since
        return line[:-1] if is_whole and isinstance(json.loads(line.decode()), dict) else b""
    except (OSError, ValueError, RecursionError):
        return b""
