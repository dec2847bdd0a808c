"""The second tier, as a State uses it: rank 0 stores commits, and restores one when no worker holds a state."""

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import (
    ENV_CHECKPOINT,
    ENV_CHECKPOINT_ALLOW_MISSING,
    ENV_CHECKPOINT_KEEP,
    ENV_CHECKPOINT_SECONDS,
    ENV_CHECKPOINT_STEPS,
    ENV_INCARNATION,
    ENV_JOB,
    ENV_NAMESPACE,
)
from hvd_elastic.policy.checkpoint_interval import LossHistory
from hvd_elastic.stores.retry import TransientError
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.trainer.checkpoint import Checkpoint, Checkpoints, FencedError, StoreError, open_checkpoints
from hvd_elastic.trainer.checkpoint.checkpoints import SaveOutcome
from hvd_elastic.trainer.checkpoint.interval import AutomaticInterval, fixed_seconds
from hvd_elastic.trainer.state.durable.tier_opening import TierOpening

logger = logging.getLogger(__name__)

DEFAULT_KEEP: Final = 3
"""Durable checkpoints that are kept if neither the job nor the script says how many."""
START_SECONDS: Final = 300.0
"""How long the start of a job waits for a store that does not answer: as long as a store may take to be restarted."""

INTERVAL: Final = "interval"
"""The reason of a checkpoint that nothing but time has asked for."""

BACKOFF: Final = Backoff(first_seconds=1.0, most_seconds=10.0)
"""Between two attempts at the start, each of which retries its own requests."""


@dataclass(frozen=True, kw_only=True)
class TierSettings:
    """The script's settings, and the job's environment, which takes precedence.

    It is read on each use: a standby receives it only when it is adopted.
    """

    script_url: str | None = None
    script_keep: int = DEFAULT_KEEP
    script_allow_missing: Collection[str] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def url(self) -> str:
        """Empty if there is no durable tier."""
        return self.environ.get(ENV_CHECKPOINT) or self.script_url or ""

    @property
    def configured(self) -> bool:
        """Whether the job or the script names a durable tier."""
        return bool(self.url)

    @property
    def place(self) -> str:
        """The URL without its options."""
        return self.url.partition("?")[0].rstrip("/")

    @property
    def allow_missing(self) -> frozenset[str]:
        """Names that the State or its checkpoints may lack."""
        given = self.environ.get(ENV_CHECKPOINT_ALLOW_MISSING, "").split(",")
        return frozenset((*self.script_allow_missing, *(name.strip() for name in given)))

    @property
    def seconds(self) -> float | None:
        """The interval; None if it is automatic."""
        return fixed_seconds(self.environ.get(ENV_CHECKPOINT_SECONDS))

    def open(self, lineage: str, stop: threading.Event) -> Checkpoints:
        """Become the job's writer. Raises what `open_checkpoints` raises."""
        steps = self.environ.get(ENV_CHECKPOINT_STEPS)
        name = self.environ.get(ENV_JOB) or Path(sys.argv[0]).stem or "job"
        return open_checkpoints(
            self.url,
            job=f"{self.environ.get(ENV_NAMESPACE) or 'local'}/{name}",
            incarnation=self.environ.get(ENV_INCARNATION) or lineage,
            interval_seconds=self.seconds,
            interval_steps=int(steps) if steps else None,
            keep=int(self.environ.get(ENV_CHECKPOINT_KEEP) or self.script_keep),
            stop=stop,
        )


class DurableTier:
    """Opens the durable checkpoints when they are first needed: on rank 0 only, and again in each new rank 0."""

    def __init__(
        self,
        settings: TierSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.settings = settings
        self._clock, self._sleep = clock, sleep
        self._checkpoints: Checkpoints | None = None
        self._opening: TierOpening | None = None
        self._overdue = False
        self._interval = AutomaticInterval()

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
            self._interval.note_step(seconds, started=self._checkpoints.counts.started, idle=self._checkpoints.idle)

    def resume(self) -> None:
        self._interval.drop_save()

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
        if self.settings.seconds is None:
            save_seconds = self._checkpoints.counts.seconds
            self._checkpoints.set_interval(self._interval.adapt(history or LossHistory(), save_seconds=save_seconds))
        overdue, self._overdue = self._overdue, False
        return overdue or self._checkpoints.due(step)

    def restore(self, lineage: str) -> Checkpoint | None:
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
                return self.newest()
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
        if self._checkpoints is None and self.settings.url:
            self._checkpoints = self.settings.open(lineage, threading.Event())

    def open_in_background(self, lineage: str) -> None:
        """Become the writer of a job that holds its state in memory, as soon as the store can be reached.

        A new writer stores its first commit at once: the former writer is fenced out, and so is its unfinished save.
        """
        if self._checkpoints is None and self._opening is None and self.settings.url:
            self._opening = TierOpening(lambda given_up: self.settings.open(lineage, given_up), clock=self._clock)
            self._opening.start()

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

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that verifies, or None. Raises as `Checkpoints.latest` does."""
        return self._checkpoints.latest() if self._checkpoints is not None else None

    def protect_found(self) -> None:
        """Never delete the checkpoint that `newest` has returned, nor any before it: they are of another state."""
        if self._checkpoints is not None:
            self._checkpoints.protect_found()

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

    def raise_if_fenced(self) -> None:
        """Raise the FencedError of the last save, if that was the reason for its failure."""
        if self._checkpoints is not None and isinstance(self._checkpoints.failure, FencedError):
            raise self._checkpoints.failure

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the save in progress has succeeded or failed. Returns whether the last save is durable."""
        return self._checkpoints is None or self._checkpoints.flush(timeout_seconds)
