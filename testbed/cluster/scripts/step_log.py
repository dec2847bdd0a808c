"""What a job's script says of each step, in the job's folder of events: a file for each process."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class StepLog:
    """A file of this process in the folder. None: nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"script-{os.uname().nodename}-{os.getpid()}-{time.time_ns()}.jsonl"
            self._file = (folder / name).open("a", buffering=1)

    def samples(self, samples: Sequence[int], *, rank: int, size: int, step: int, epoch: int) -> None:
        """Indices of the data set that this rank uses in a step, told before it.

        Who dies once the gradients are summed has given its own to a step that counts. `step` counts those that were
        committed, and this one.
        """
        self._write("samples", rank=rank, size=size, step=step, epoch=epoch, samples=list(samples))

    def step(self, *, rank: int, size: int, step: int) -> None:
        """A step was taken: what the product's training tells by itself."""
        self._write("step", rank=rank, size=size, step=step)

    def _write(self, event: str, **fields: Any) -> None:
        if self._file:
            self._file.write(json.dumps({"time": time.time(), "event": event, **fields}) + "\n")
