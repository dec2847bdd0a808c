"""How a worker's pod leaves: it asks the training process to checkpoint, and ends as soon as that has left the job."""

import logging
import os
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, HEARTBEAT_FILE, LEAVE_FILE

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 0.03
"""From the last exit code to the pod's end: `RUN_DIR/adopt` ends with it and sshd sends it on."""


def announce(run_dir: Path) -> None:
    """Put LEAVE_FILE and CHECKPOINT_REQUEST_FILE where the training process looks.

    In this order: a request without the other says that the whole job waits for the checkpoint.
    """
    put(run_dir / LEAVE_FILE, "SIGTERM")
    request_checkpoint(run_dir, "this pod is about to end")


def request_checkpoint(run_dir: Path, reason: str) -> None:
    """Ask for a durable checkpoint at the next commit; a request that is there already is left as it is."""
    path = run_dir / CHECKPOINT_REQUEST_FILE
    if not path.exists():
        put(path, reason)


def clean(run_dir: Path) -> None:
    """Remove what an earlier process left: its heartbeat is not the next one's, its requests are over."""
    for name in (HEARTBEAT_FILE, CHECKPOINT_REQUEST_FILE, LEAVE_FILE):
        (run_dir / name).unlink(missing_ok=True)


def put(path: Path, line: str) -> None:
    """Write `line` to `path` whole; a full disk is reported and does not stop the pod from ending well."""
    fresh = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        fresh.write_text(line + "\n")
        fresh.replace(path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
