"""Which samples each step has trained on: a file for each process, beside its events."""

import json
import os
import time
from pathlib import Path

import torch


class SeenSamples:
    """Notes them before the step: who dies once the gradients are summed has given its own to a step that counts."""

    def __init__(self, folder: Path | None) -> None:
        """None: nothing is noted."""
        self._out = None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns()}.jsonl"
            self._out = (folder / name).open("a", buffering=1)

    def note(self, *, step: int, epoch: int, rank: int, size: int, samples: torch.Tensor) -> None:
        """The samples of this process in a step of the job."""
        if self._out:
            told = {"time": time.time(), "step": step, "epoch": epoch, "rank": rank, "size": size}
            self._out.write(json.dumps({**told, "samples": samples.tolist()}) + "\n")
