"""What a job's script says of each step, in the job's folder of events: two lines of each rank, before it commits."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path


class StepLog:
    """A file of this process in the folder."""

    def __init__(self, folder: Path, *, steps: bool = True) -> None:
        """`steps`: write an event `step`, too, as the product's trainer does by itself."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"script-{os.uname().nodename}-{os.getpid()}.jsonl").open("a", buffering=1)
        self._steps = steps

    def step(self, samples: Sequence[int], *, rank: int, size: int, step: int, epoch: int) -> None:
        """`samples` are indices of the data set that this rank used; `step` counts those that were committed, and
        this one.
        """
        line = {"time": time.time(), "rank": rank, "size": size, "step": step, "epoch": epoch}
        self._file.write(json.dumps({**line, "event": "samples", "samples": list(samples)}) + "\n")
        if self._steps:
            self._file.write(json.dumps({**line, "event": "step"}) + "\n")
