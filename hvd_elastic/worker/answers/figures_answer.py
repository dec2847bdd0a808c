"""READY_PORT's answer to `figures`: what the training process has written about itself."""

import json
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import FIGURES_FILE, FIGURES_MAX_BYTES

NO_FIGURES: Final = b"\n"


def figures_line(run_dir: Path) -> bytes:
    """Return FIGURES_FILE if it is one line with a JSON object and not too long, else an empty line.

    The script could write anything there, and anybody may ask: nothing else of the pod's files must come out.
    """
    try:
        with (run_dir / FIGURES_FILE).open("rb") as file:
            line = file.read(FIGURES_MAX_BYTES + 1)
        is_whole = len(line) <= FIGURES_MAX_BYTES and line.endswith(b"\n") and line.count(b"\n") == 1
        return line if is_whole and isinstance(json.loads(line), dict) else NO_FIGURES
    except (OSError, ValueError, RecursionError):
        return NO_FIGURES
