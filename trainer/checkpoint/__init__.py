"""Durable checkpoints: the second tier, used when no process is left that holds the state in memory.

Only rank 0 of a job opens and writes them. What it loads reaches the other ranks by `State.sync()`::

    checkpoints = open_checkpoints("s3://bucket/fashion", job="research/fashion", incarnation=uid)
    found = checkpoints.latest()                    # newest that verifies, or None
    values = found.load() if found else None        # nested dicts of tensors and plain values, no pickle
    ...
    if checkpoints.due(step):
        checkpoints.save(snapshot, step=step, world_size=8, reason="interval")   # returns at once
    ...
    checkpoints.flush(timeout_seconds=20)           # before the process ends
    checkpoints.close()

Whoever only looks at them uses `read_checkpoints`, which leaves the job that writes them alone.

Where to change what:

- when a checkpoint is due: `interval.py`; how long `auto` is: `hvd_elastic/policy/checkpoint_interval.py`, from what
  `AutomaticInterval` measures and `trainer/data/progress.py` remembers; when training waits for one:
  `must_wait_for_store` in `trainer/state/agreement.py`.
- export to, or import from, another format: a module in `exchange/`, chosen in `file_formats.py`; what becomes of
  types that others lack: `plain_content.py`; which names go into a file: `trainer/state/durable/exported_state.py`;
  what fits a model: `trainer/state/durable/warm_start.py`.
"""

from hvd_elastic.trainer.checkpoint.checkpoints import Checkpoints, SaveCounts, open_checkpoints
from hvd_elastic.trainer.checkpoint.errors import (
    CaptureError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointUrlError,
    CorruptError,
    FencedError,
    IncompatibleError,
    PrefixOwnedError,
    StoreError,
    StoreFullError,
)
from hvd_elastic.trainer.checkpoint.reading import Checkpoint, CheckpointReader, Rejected, read_checkpoints

__all__ = [
    "CaptureError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointNotFoundError",
    "CheckpointReader",
    "CheckpointUrlError",
    "Checkpoints",
    "CorruptError",
    "FencedError",
    "IncompatibleError",
    "PrefixOwnedError",
    "Rejected",
    "SaveCounts",
    "StoreError",
    "StoreFullError",
    "open_checkpoints",
    "read_checkpoints",
]
