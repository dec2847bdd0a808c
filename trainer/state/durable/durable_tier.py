"""The second tier, as a State uses it: rank 0 stores commits, and restores one when no worker holds a state."""

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT,
    ENV_CHECKPOINT_ALLOW_MISSING,
    ENV_CHECKPOINT_KEEP,
    ENV_CHECKPOINT_SECONDS,
    ENV_CHECKPOINT_STEPS,
    ENV_INCARNATION,
    ENV_JOB,
    ENV_NAMESPACE,
    Exit,
    HvdElasticError,
)
from hvd_elastic.policy.checkpoint_interval import FIRST_SECONDS, LossHistory, checkpoint_seconds
from hvd_elastic.stores.retry import TransientError
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.trainer.checkpoint import CaptureError, Checkpoints, StoreError, open_checkpoints
from hvd_elastic.trainer.checkpoint.checkpoints import SaveOutcome
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.checkpoint.interval import fixed_seconds
from hvd_elastic.trainer.checkpoint.save_cost import SaveCost
from hvd_elastic.trainer.state.durable.changed_state import IMPORTED, check_names
from hvd_elastic.trainer.state.durable.tier_opening import TierOpening

logger = logging.getLogger(__name__)

DEFAULT_KEEP: Final = 3
"""Durable checkpoints that are kept if neither the job nor the script says how many."""
_TOLD_FACTOR: Final = 1.5
"""The log tells an automatic interval that has changed by this factor since it was last told."""
START_SECONDS: Final = 300.0
"""How long the start of a job waits for a store that does not answer: as long as a store may take to be restarted."""

BACKOFF: Final = Backoff(first_seconds=1.0, most_seconds=10.0)
"""Between two attempts at the start, each of which retries its own requests."""


class UnstorableError(HvdElasticError):
    """A value of the state could only be stored as a pickle, and a pickle is never loaded."""

    exit_code = Exit.SCRIPT_MISTAKE


class DurableTier:
    """Opens the durable checkpoints when they are first needed: on rank 0 only, and again in each new rank 0."""

    def __init__(
        self,
        url: str | None = None,
        *,
        keep: int = DEFAULT_KEEP,
        allow_missing: Collection[str] = (),
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._environ = environ
        self._script_url, self._script_keep = url, keep
        self._allow_missing = tuple(allow_missing)
        self._clock, self._sleep = clock, sleep
        self._checkpoints: Checkpoints | None = None
        self._opening: TierOpening | None = None
        self._overdue = False
        self._cost = SaveCost()
        self._was_saving, self._started = False, 0
        self._told_seconds = FIRST_SECONDS
        self.restored_reason: str | None = None
        """Why the checkpoint was written that `load_newest` has returned."""
        self.restored_name = ""
        """Its name below the prefix."""

    @property
    def configured(self) -> bool:
        """Whether the job or the script names a durable tier."""
        return bool(self._url)

    @property
    def place(self) -> str:
        """The URL without its options; empty if there is no durable tier."""
        return (self._url or "").partition("?")[0].rstrip("/")

    @property
    def _url(self) -> str | None:
        # Read on each use: a standby receives the job's environment only when it is adopted.
        return self._environ.get(ENV_CHECKPOINT) or self._script_url

    @property
    def is_writer(self) -> bool:
        """Whether this process is the job's writer, or is becoming it."""
        return self._checkpoints is not None or self._opening is not None

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
        """Wait until a save would begin at once. Returns whether it would. Raises as `due` does."""
        deadline = self._clock() + timeout_seconds
        if self._opening is not None:
            self._opening.wait(timeout_seconds)
            self._take_opened()
            timeout_seconds = deadline - self._clock()
        return self._checkpoints is not None and self._checkpoints.wait_idle(timeout_seconds)

    def note_step(self, seconds: float) -> None:
        """A step took so long, from commit to commit, since this was last called: it tells what a save costs."""
        if self._checkpoints is not None:
            started = self._checkpoints.counts.started
            self._cost.note_step(seconds, saving=self._was_saving or started != self._started)
            self._was_saving, self._started = not self._checkpoints.idle, started

    def resume(self) -> None:
        """Training has paused, and goes on: the pause is no cost of a save."""
        self._cost.drop_save()

    def due(self, step: int, history: LossHistory | None = None) -> bool:
        """Whether the interval is over or a former writer's save may be incomplete. False on all but the writer.

        Args:
            step: number of the last commit.
            history: of the job, which an interval that is `auto` follows. Default None: nothing is known of it.

        Raises:
            FencedError: a newer writer owns the prefix; this process should end.
            PrefixOwnedError: another job owns the prefix by now.
        """
        self._take_opened()
        if self._checkpoints is None:
            return False
        if fixed_seconds(self._environ.get(ENV_CHECKPOINT_SECONDS)) is None:
            self._adapt_interval(self._checkpoints, history or LossHistory())
        overdue, self._overdue = self._overdue, False
        return overdue or self._checkpoints.due(step)

    def _adapt_interval(self, checkpoints: Checkpoints, history: LossHistory) -> None:
        cost, save_seconds = self._cost.seconds, checkpoints.counts.seconds
        seconds = checkpoint_seconds(history, cost_seconds=cost, save_seconds=save_seconds)
        checkpoints.set_interval(seconds)
        if cost is not None and not 1 / _TOLD_FACTOR < seconds / self._told_seconds < _TOLD_FACTOR:
            self._told_seconds = seconds
            logger.info(
                "durable checkpoints each %.0f s: one costs %.2f s, and all copies of the state were lost %d times in"
                " %.1f h", seconds, cost, history.losses, history.trained_seconds / 3600,
            )  # fmt: skip

    def restore(self, lineage: str) -> dict[str, Any] | None:
        """Become the writer of a job that holds no state; return the newest checkpoint that verifies, or None.

        Without the store nothing is known, so this waits START_SECONDS for one that does not answer. A store that
        answers and refuses is not asked again.

        Raises:
            StoreError: the store did not answer in time, or refused.
            CheckpointError: as `open_checkpoints` and `Checkpoints.latest` raise.
        """
        deadline = self._clock() + START_SECONDS
        for failures in itertools.count(1):
            try:
                self.open(lineage)
                return self.load_newest()
            except TransientError as error:
                rest = deadline - self._clock()
                if rest <= 0:
                    raise StoreError(
                        f"{error}\nThe store did not answer for {START_SECONDS:.0f} s. A job that cannot read its"
                        " checkpoints does not start over: see that its pods reach the store, and start it again"
                    ) from error
                logger.warning("the store does not answer, the job waits for it for another %.0f s: %s", rest, error)
                self._sleep(min(rest, BACKOFF.with_jitter(failures, least=0.5)))
        raise AssertionError  # itertools.count has no end

    def open(self, lineage: str) -> None:
        """Become the job's writer. Raises what `open_checkpoints` raises."""
        if self._checkpoints is None and self._url:
            self._checkpoints = self._open_tier(lineage, threading.Event())

    def open_in_background(self, lineage: str) -> None:
        """Become the writer of a job that holds its state in memory, as soon as the store can be reached.

        A new writer stores its first commit at once: the former writer is fenced out, and so is its unfinished save.
        """
        if self._checkpoints is None and self._opening is None and self._url:
            self._opening = TierOpening(lambda given_up: self._open_tier(lineage, given_up), clock=self._clock)
            self._opening.start()

    def _open_tier(self, lineage: str, stop: threading.Event) -> Checkpoints:
        return open_checkpoints(
            self._url or "",
            job=self._job(),
            incarnation=self._environ.get(ENV_INCARNATION) or lineage,
            interval_seconds=fixed_seconds(self._environ.get(ENV_CHECKPOINT_SECONDS)),
            interval_steps=_optional_int(self._environ.get(ENV_CHECKPOINT_STEPS)),
            keep=int(self._environ.get(ENV_CHECKPOINT_KEEP) or self._script_keep),
            stop=stop,
        )

    def _take_opened(self) -> None:
        if self._opening is not None and (opened := self._opening.take()) is not None:
            self._checkpoints, self._opening, self._overdue = opened, None, True

    def stop_opening(self) -> None:
        """Give up what `open_in_background` began: the world ends, and another process may write in the next one."""
        if self._opening is not None:
            self._opening.give_up()
            self._opening = None

    def close(self) -> None:
        """Stop being the writer: another process is rank 0 now, or the script has ended."""
        self.stop_opening()
        if self._checkpoints is not None:
            self._checkpoints.close(timeout_seconds=0)  # the whole world would wait for a request that hangs
            self._checkpoints = None

    def load_newest(self) -> dict[str, Any] | None:
        """Return the content of the newest checkpoint that verifies, or None. Raises as `Checkpoints.latest` does."""
        found = self._checkpoints.latest() if self._checkpoints is not None else None
        if found is None:
            return None
        self.restored_reason = found.reason
        self.restored_name = found.name
        return found.load()

    def check_names(self, stored: Mapping[str, Any], present: Mapping[str, Any]) -> None:
        """Compare what `load_newest` returned with the present state, before it is loaded.

        If they differ in what the script or the job allows, no retention deletes the former state's checkpoints.

        Raises:
            IncompatibleError: one side has names that the other lacks.
        """
        given = self._environ.get(ENV_CHECKPOINT_ALLOW_MISSING, "").split(",")
        allowed = {*self._allow_missing, *(name.strip() for name in given)}
        is_part = self.restored_reason == IMPORTED
        differ = check_names(stored, present, allow_missing=allowed, is_part=is_part)
        if differ and self._checkpoints is not None:
            logger.warning("the state is another than that of its checkpoints: these are kept until you delete them")
            self._checkpoints.protect_found()

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

    def take_outcomes(self) -> tuple[SaveOutcome, ...]:
        """Return how the saves ended that ended since the last call."""
        return self._checkpoints.take_outcomes() if self._checkpoints is not None else ()

    @property
    def failure_may_pass(self) -> bool:
        """Whether the last save failed for a reason that may be gone at the next attempt."""
        return self._checkpoints is not None and isinstance(self._checkpoints.failure, TransientError)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the save in progress has succeeded or failed. Returns whether the last save is durable."""
        return self._checkpoints is None or self._checkpoints.flush(timeout_seconds)

    def _job(self) -> str:
        name = self._environ.get(ENV_JOB) or Path(sys.argv[0]).stem or "job"
        return f"{self._environ.get(ENV_NAMESPACE) or 'local'}/{name}"


def _optional_int(text: str | None) -> int | None:
    return int(text) if text else None
