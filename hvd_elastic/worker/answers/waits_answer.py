"""READY_PORT's answer to `waits`: what the ranks of this pod that get on with nothing have written about it."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import WAIT_FILE, WAITS_MAX_BYTES

_FRESH_SECONDS: Final = 10.0
"""A file is replaced every second while it is true; a process that was killed leaves its last."""
_FILE_BYTES: Final = 1024


def waits_line(run_dir: Path, slots: int, *, clock: Callable[[], float] = time.time) -> bytes:
    """Return a JSON list of the fresh WAIT_FILEs' objects of `slots` processes, as one line; `[]` if there is none.

    The script could write anything there, and anybody may ask: nothing else of the pod's files must come out.
    """
    found = [one for rank in range(slots) for one in _read(run_dir / f"{WAIT_FILE}.{rank}", clock())]
    line = _line(found)
    while len(line) > WAITS_MAX_BYTES:
        found.pop()
        line = _line(found)
    return line


def _line(found: list[dict[str, object]]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


def _read(path: Path, now: float) -> Iterator[dict[str, object]]:
    """The object in the file; nothing if it is old, long or no JSON object."""
    try:
        with path.open("rb") as file:
            line = file.read(_FILE_BYTES + 1)
        document = json.loads(line)
        if len(line) <= _FILE_BYTES and isinstance(document, dict) and now - path.stat().st_mtime < _FRESH_SECONDS:
            yield document
    except (OSError, ValueError, RecursionError):
        return
