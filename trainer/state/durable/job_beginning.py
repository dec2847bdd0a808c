"""What a job begins with when no worker holds its state: the newest durable checkpoint, or else its warm start."""

import logging
import os
import time
from collections.abc import Mapping

from hvd_elastic.mpijob.contract import Exit, HvdElasticError
from hvd_elastic.trainer.checkpoint import CaptureError, Checkpoint
from hvd_elastic.trainer.checkpoint.format.capture import Capture
from hvd_elastic.trainer.data.progress import TRAIN, progress_words
from hvd_elastic.trainer.state.durable.changed_state import IMPORTED, check_names
from hvd_elastic.trainer.state.durable.durable_tier import INTERVAL, DurableTier
from hvd_elastic.trainer.state.durable.warm_start import WarmStart
from hvd_elastic.trainer.state.present_state import PresentState
from hvd_elastic.trainer.telemetry.console import say

logger = logging.getLogger(__name__)


class UnstorableError(HvdElasticError):
    """A value of the state could only be stored as a pickle, and a pickle is never loaded."""

    exit_code = Exit.SCRIPT_MISTAKE


class JobBeginning:
    """Loads it on rank 0. The other workers get it with the state that they receive."""

    def __init__(self, present: PresentState, durable: DurableTier) -> None:
        self._present, self._durable = present, durable
        self.restored_step: int | None = None
        """The step of the durable checkpoint that this process has restored; None if it has restored none."""

    def load(self, *, anew: bool) -> bool:
        """Become the job's writer, and load what it begins with. Returns whether there was a durable checkpoint.

        Args:
            anew: the job may begin anew if there is none.

        Raises:
            CheckpointError: as `DurableTier.restore` raises.
            IncompatibleError: the checkpoint has other names than the State; or the warm start does not fit.
        """
        self._present.progress.lineage = f"{time.time_ns():x}-{id(self):x}"
        found = self._durable.restore(self._present.progress.lineage)
        if found is None and not anew:
            return False
        words = self._begin_anew() if found is None else self._restore(found)
        if self._durable.settings.configured:
            say(logger, words)
        return found is not None

    def check_storable(self, commit: Mapping[str, object]) -> None:
        """Find out at the start, not at the first interval, that a commit cannot be stored. Raises UnstorableError."""
        if self._durable.is_writer:
            try:
                Capture.take(commit)
            except CaptureError as error:
                raise UnstorableError(
                    f"{error}\nKeep such values out of the State, or convert them to plain values."
                ) from error

    def _restore(self, found: Checkpoint) -> str:
        """Go on from a durable checkpoint. Returns what is said of it."""
        stored, settings = found.load(), self._durable.settings
        is_part = found.reason == IMPORTED
        if check_names(stored, self._present.tree(), allow_missing=settings.allow_missing, is_part=is_part):
            logger.warning("the state is another than that of its checkpoints: these are kept until you delete them")
            self._durable.protect_found()
        self._present.load_stored(stored)
        progress = self._present.progress
        progress.full_losses += found.reason == INTERVAL  # it was not the last commit, as far as anybody knows
        self.restored_step = progress.steps
        return f"restored {progress_words(progress, self._present.epoch, TRAIN)} from {settings.place}/{found.name}"

    def _begin_anew(self) -> str:
        """Take the weights of the job's warm start, if it has one. Returns what is said of it."""
        words = f"no checkpoint in {self._durable.settings.place}, beginning anew"
        warm_start = WarmStart.of_job(os.environ)
        if warm_start is None:
            return words
        warmed = warm_start.load(self._present.objects.modules(), self._present.objects.load_weights)
        return f"{words}, with {', '.join(warmed)} of {warm_start.place.partition('?')[0]}"
