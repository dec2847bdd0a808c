"""Runs `python SCRIPT ...` with slow optimizer steps, each slower than the one before.

From when the file `hurry` is there, or the one that HURRY names, they are as fast as ever.
A training on made-up data would be over before a worker has gone and another has come, on a busy machine all the more.
"""

import itertools
import os
import runpy
import sys
import time
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

HURRY = Path(os.environ.get("HURRY", "hurry"))
LONGER_SECONDS = 0.05
"""By how much a step takes longer than the one before."""

_steps = itertools.count(1)


def _wait(*_: object) -> None:
    end = time.monotonic() + next(_steps) * LONGER_SECONDS
    while time.monotonic() < end and not HURRY.exists():
        time.sleep(LONGER_SECONDS)


if __name__ == "__main__":
    register_optimizer_step_post_hook(_wait)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
