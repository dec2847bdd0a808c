"""The second tier, as a State uses it: rank 0 hands commits over, and restores where nobody holds a state."""

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
RETRY_SECONDS: Final = 60.0


class UnstorableError(HvdElasticError):
    """A value of the state can only be stored as a pickle, which is never loaded again."""

    exit_code = Exit.SCRIPT_MISTAKE


class DurableTier:
    """Opens the checkpoints when they are first needed, on rank 0 only, and again in a process that becomes rank 0."""

    def __init__(
        self,
        url: str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = environ
        self._given = url
        self._clock = clock
        self._checkpoints: Checkpoints | None = None
        self._retry: tuple[float, str] | None = None
        self._overdue = False

    @property
    def configured(self) -> bool:
        """Whether there is a durable tier."""
        return bool(self._url)

    @property
    def _url(self) -> str | None:
        # Read late: a standby gets the job's environment when it is adopted.
        return self._environ.get(ENV_CHECKPOINT) or self._given

    @property
    def writes(self) -> bool:
        """Whether this process is the job's writer."""
        return self._checkpoints is not None

    @property
    def stored_step(self) -> int | None:
        """Step of the newest checkpoint that this process made durable, or was restored from."""
        return self._checkpoints.counts.durable_step if self._checkpoints is not None else None

    @property
    def busy(self) -> bool:
        """Whether it still reads a snapshot that was handed over."""
        return self._checkpoints is not None and self._checkpoints.busy

    def due(self, step: int) -> bool:
        """Whether the interval is over, or another's save may have been cut short; False on all but the writer."""
        if self._retry is not None and self._clock() >= self._retry[0]:
            self.keep_open(self._retry[1])
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
                interval_steps=_whole(self._environ.get(ENV_CHECKPOINT_STEPS)),
            )

    def keep_open(self, lineage: str) -> None:
        """Be the writer of a job that holds its state in memory; a silent store is tried again later.

        Whoever takes over stores the next commit at once: the writer before is fenced out, with what it was storing.
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
                "the durable tier cannot be opened, training goes on without for %.0f s: %s", RETRY_SECONDS, error
            )

    def close(self) -> None:
        """Stop writing: another process is rank 0 now, or the script has ended."""
        self._retry = None
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None

    def newest(self) -> dict[str, Any] | None:
        """What the newest checkpoint that verifies holds. Raises StoreError where that cannot be known."""
        found = self._checkpoints.latest() if self._checkpoints is not None else None
        if found is None:
            return None
        logger.info("restored %s: step %d, written by %d workers", found.name, found.step, found.world_size)
        return found.load()

    def refuse(self, snapshot: Mapping[str, object]) -> None:
        """Say at the start, not at the first interval, what cannot be stored. Raises UnstorableError."""
        if self._checkpoints is not None:
            try:
                Capture.take(snapshot)
            except CaptureError as error:
                raise UnstorableError(
                    f"{error}\nKeep such values out of the State, or give them as plain ones."
                ) from error

    def offer(self, snapshot: Mapping[str, object], *, step: int, size: int) -> None:
        """Hand a commit over; returns at once."""
        if self._checkpoints is not None:
            self._checkpoints.save(snapshot, step=step, world_size=size, reason="interval")

    def insist(
        self, snapshot: Mapping[str, object], *, step: int, size: int, reason: str, within_seconds: float
    ) -> bool:
        """Hand a commit over and wait until it is durable; whether it is. A save that is under way goes first."""
        if self._checkpoints is None:
            return False
        deadline = self._clock() + within_seconds
        if not self._checkpoints.idle(within_seconds):
            logger.warning("step %d is not durable: the save before it did not end in %.0f s", step, within_seconds)
            return False
        self._checkpoints.save(snapshot, step=step, world_size=size, reason=reason)
        return self._checkpoints.flush(max(0.0, deadline - self._clock()))

    def flush(self) -> bool:
        """Wait until what was handed over is durable, or its retries are over; whether it is."""
        return self._checkpoints is None or self._checkpoints.flush()

    def _job(self) -> str:
        name = self._environ.get(ENV_JOB) or Path(sys.argv[0]).stem or "job"
        return f"{self._environ.get(ENV_NAMESPACE) or 'local'}/{name}"


def _whole(text: str | None) -> int | None:
    return int(text) if text else None
