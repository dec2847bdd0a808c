"""How a worker's pod leaves: it asks the training process to checkpoint, and ends when that has left the job."""

import logging
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, HEARTBEAT_FILE, LEAVE_FILE
from hvd_elastic.system.atomic_file import replace_file

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 0.03
"""From the last exit code to the pod's end: time for `RUN_DIR/adopt` to end with that code and for sshd to send it."""


def announce(run_dir: Path) -> None:
    """Write LEAVE_FILE and CHECKPOINT_REQUEST_FILE for the training process.

    The order matters: a request without LEAVE_FILE means that the whole job waits for the checkpoint.
    """
    write_line(run_dir / LEAVE_FILE, "SIGTERM")
    request_checkpoint(run_dir, "this pod is about to end")


def request_checkpoint(run_dir: Path, reason: str) -> None:
    """Ask for a durable checkpoint at the next commit. An earlier request stays as it is."""
    path = run_dir / CHECKPOINT_REQUEST_FILE
    if not path.exists():
        write_line(path, reason)


def clean(run_dir: Path) -> None:
    """Remove the heartbeat and the requests of an earlier process, which do not concern the next one."""
    for name in (HEARTBEAT_FILE, CHECKPOINT_REQUEST_FILE, LEAVE_FILE):
        (run_dir / name).unlink(missing_ok=True)


def write_line(path: Path, line: str) -> None:
    """Replace `path`. A full disk is only logged: it must not keep the pod from ending well."""
    try:
        replace_file(path, line + "\n")
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
