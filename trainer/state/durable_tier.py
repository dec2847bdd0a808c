"""The second tier, as a State uses it: rank 0 stores commits, and restores one when no worker holds a state."""

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT,
    ENV_CHECKPOINT_SECONDS,
    ENV_CHECKPOINT_STEPS,
    ENV_INCARNATION,
    ENV_JOB,
    ENV_NAMESPACE,
    Exit,
    HvdElasticError,
)
from hvd_elastic.trainer.checkpoint import CaptureError, Checkpoints, StoreError, open_checkpoints
from hvd_elastic.trainer.checkpoint.format.capture import Capture

logger = logging.getLogger(__name__)

DEFAULT_SECONDS: Final = 300.0
"""Interval between durable checkpoints if the job sets none."""
RETRY_SECONDS: Final = 60.0
"""Time until an unreachable store is tried again."""


class UnstorableError(HvdElasticError):
    """A value of the state could only be stored as a pickle, and a pickle is never loaded."""

    exit_code = Exit.SCRIPT_MISTAKE


class DurableTier:
    """Opens the durable checkpoints when they are first needed: on rank 0 only, and again in each new rank 0."""

    def __init__(
        self,
        url: str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = environ
        self._script_url = url
        self._clock = clock
        self._checkpoints: Checkpoints | None = None
        self._retry: tuple[float, str] | None = None
        self._overdue = False

    @property
    def configured(self) -> bool:
        """Whether the job or the script names a durable tier."""
        return bool(self._url)

    @property
    def _url(self) -> str | None:
        # Read on each use: a standby receives the job's environment only when it is adopted.
        return self._environ.get(ENV_CHECKPOINT) or self._script_url

    @property
    def is_writer(self) -> bool:
        """Whether this process is the job's writer."""
        return self._checkpoints is not None

    @property
    def durable_step(self) -> int | None:
        """Step of the newest checkpoint that this process made durable or was restored from; None if there is none."""
        return self._checkpoints.counts.durable_step if self._checkpoints is not None else None

    @property
    def busy(self) -> bool:
        """Whether a save in the background still reads its snapshot."""
        return self._checkpoints is not None and self._checkpoints.busy

    @property
    def idle(self) -> bool:
        """Whether a save would begin at once. False on all but the writer."""
        return self._checkpoints is not None and self._checkpoints.idle

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until a save would begin at once. Returns whether it would."""
        return self._checkpoints is not None and self._checkpoints.wait_idle(timeout_seconds)

    def due(self, step: int) -> bool:
        """Whether the interval is over or a former writer's save may be incomplete. False on all but the writer."""
        if self._retry is not None and self._clock() >= self._retry[0]:
            self.open_or_retry(self._retry[1])
        if self._checkpoints is None:
            return False
        overdue, self._overdue = self._overdue, False
        return overdue or self._checkpoints.due(step)

    def open(self, lineage: str) -> None:
        """Become the job's writer. Raises what `open_checkpoints` raises."""
        if self._checkpoints is None and self._url:
            self._checkpoints = open_checkpoints(
                self._url,
                job=self._job(),
                incarnation=self._environ.get(ENV_INCARNATION) or lineage,
                interval_seconds=float(self._environ.get(ENV_CHECKPOINT_SECONDS) or DEFAULT_SECONDS),
                interval_steps=_optional_int(self._environ.get(ENV_CHECKPOINT_STEPS)),
            )

    def open_or_retry(self, lineage: str) -> None:
        """Become the writer of a job that holds its state in memory. An unreachable store is tried again later.

        A new writer stores the next commit at once: the former writer is fenced out, and so is its unfinished save.
        """
        self._retry = None
        if self._checkpoints is not None:
            return
        try:
            self.open(lineage)
            self._overdue = True
        except StoreError as error:
            self._retry = self._clock() + RETRY_SECONDS, lineage
            logger.warning(
                "the durable tier cannot be opened, training continues without it for %.0f s: %s", RETRY_SECONDS, error
            )

    def close(self) -> None:
        """Stop being the writer: another process is rank 0 now, or the script has ended."""
        self._retry = None
        if self._checkpoints is not None:
            self._checkpoints.close(timeout_seconds=0)  # the whole world would wait for a request that hangs
            self._checkpoints = None

    def load_newest(self) -> dict[str, Any] | None:
        """Return the content of the newest checkpoint that verifies, or None. Raises as `Checkpoints.latest` does."""
        found = self._checkpoints.latest() if self._checkpoints is not None else None
        if found is None:
            return None
        logger.info("restored %s: step %d, written by %d workers", found.name, found.step, found.world_size)
        return found.load()

    def validate(self, snapshot: Mapping[str, object]) -> None:
        """Check at the start, not at the first interval, that a snapshot can be stored. Raises UnstorableError."""
        if self._checkpoints is not None:
            try:
                Capture.take(snapshot)
            except CaptureError as error:
                raise UnstorableError(
                    f"{error}\nKeep such values out of the State, or convert them to plain values."
                ) from error

    def save(self, snapshot: Mapping[str, object], *, step: int, size: int, reason: str) -> None:
        """Start to store a commit in the background. Only while `idle`, otherwise this waits for the save before.

        Args:
            snapshot: the commit. Nothing may change it until `busy` is False.
            step: number of the commit.
            size: number of workers in the present world.
            reason: why it is stored; goes into the manifest.

        Raises:
            FencedError: a newer writer owns the prefix; this process should end.
        """
        if self._checkpoints is not None:
            self._checkpoints.save(snapshot, step=step, world_size=size, reason=reason, owned=True)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the save in progress has succeeded or failed. Returns whether the last save is durable."""
        return self._checkpoints is None or self._checkpoints.flush(timeout_seconds)

    def _job(self) -> str:
        name = self._environ.get(ENV_JOB) or Path(sys.argv[0]).stem or "job"
        return f"{self._environ.get(ENV_NAMESPACE) or 'local'}/{name}"


def _optional_int(text: str | None) -> int | None:
    return int(text) if text else None
