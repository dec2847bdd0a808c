"""Compares what the workers hold, at the first commits of each world, and later as often as it costs next to nothing.

The ranks exchange a fingerprint each. Only where these differ do they look at which tensors, and how far apart they
are: all decide the same from the same reports.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Final, NoReturn
from zlib import crc32

import torch

from hvd_elastic.mpijob.contract import ENV_REPLICAS, Exit, HvdElasticError
from hvd_elastic.trainer.collectives.errors import HorovodInternalError
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.state.replicas.difference import Difference, take_from
from hvd_elastic.trainer.state.replicas.difference_words import ON_PURPOSE, difference_words, likely_reason
from hvd_elastic.trainer.state.replicas.fingerprint import fingerprint
from hvd_elastic.trainer.state.replicas.replicated import Replicated
from hvd_elastic.trainer.state.replicas.verdict import NEVER, Comparison, RankReport, Remedy
from hvd_elastic.trainer.state.state_objects import StateError, StateObjects

logger = logging.getLogger(__name__)

FIRST_COMMITS: Final = frozenset({1, 2, 4, 8})
"""Commits of a world after which it is compared: a mistake of the script shows at once."""
COST: Final = 0.001
"""Most part of the later training time that comparing takes."""


class ReplicaMode(StrEnum):
    """What happens when workers differ."""

    STOP = "stop"
    """Mend it where that is possible; end the job where it is not."""
    WARN = "warn"
    OFF = "off"

    @classmethod
    def choose(cls, of_script: str) -> "ReplicaMode":
        """Take the job's mode (`HVD_ELASTIC_REPLICAS`), or else the script's. Raises StateError: there is none such."""
        name = os.environ.get(ENV_REPLICAS) or of_script
        if name not in set(cls):
            raise StateError(f"replicas={name!r}: must be one of {', '.join(cls)}")
        return cls(name)


class ReplicaError(HvdElasticError):
    """The script makes workers differ that should be alike."""

    exit_code = Exit.SCRIPT_MISTAKE


class WorkerDiffers(SystemExit):
    """Ends a worker that alone holds other parameters than all others, without the script's doing."""

    def __init__(self) -> None:
        super().__init__(int(Exit.WORKER_DIFFERS))


class ReplicaCheck:
    """The checks of one process."""

    def __init__(
        self,
        objects: StateObjects,
        *,
        mode: str,
        rank_local: Collection[str],
        go_back: Callable[[], object],
        world: TrainingWorld = WORLD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Compare nothing yet.

        Args:
            objects: of the State.
            mode: the script's, a ReplicaMode.
            rank_local: names of objects that are each worker's own.
            go_back: makes this process hold no commit, so that the next world begins with the newest durable one.
            world: of the ranks.
            clock: seconds, for what a check costs.

        Raises:
            StateError: there is no such mode, or no object of such a name.
        """
        if unknown := sorted(name for name in rank_local if name not in objects):
            raise StateError(f"rank_local: {', '.join(unknown)}: the State has nothing of this name")
        self._objects, self._rank_local, self._go_back = objects, frozenset(rank_local), go_back
        self._of_script, self._mode = mode, ReplicaMode.choose(mode)
        self._world, self._clock = world, clock
        self._commits = 0
        """In this world."""
        self._has_said = False
        self._due_at = 0.0
        self._alike_at = self._went_back_from = NEVER

    @property
    def is_on(self) -> bool:
        return self._mode is not ReplicaMode.OFF and self._world.size() > 1

    def enter_world(self) -> None:
        # Chosen again: a standby receives the job's environment after its State was made.
        self._commits, self._mode = 0, ReplicaMode.choose(self._of_script)

    def is_due(self) -> bool:
        """Count a commit. Returns whether this rank wants all to be compared after it; rank 0's clock decides."""
        self._commits += 1
        if not self.is_on or self._world.rank() != 0:
            return False
        return self._commits in FIRST_COMMITS or (self._commits > max(FIRST_COMMITS) and self._clock() >= self._due_at)

    def compare(self, step: int, *, is_restorable: bool) -> bool:
        """Compare all workers after the commit of this step. A collective operation. Returns whether any was changed.

        Args:
            step: of the commit, the same on all.
            is_restorable: this rank, the writer, knows of a durable checkpoint to go back to.

        Raises:
            ReplicaError: on all workers: the script makes them differ.
            WorkerDiffers: on the one worker that differs.
            HorovodInternalError: on the others: training goes back to what is left.
        """
        begun = self._clock()
        held = Replicated.of(self._objects, self._rank_local)
        own = [fingerprint(held.tensors.values()), crc32(repr(held.rates).encode()), self._alike_at]
        told = torch.tensor([[*own, self._went_back_from, int(is_restorable)]], dtype=torch.int64)
        gathered = self._world.allgather(told, name="hvd_elastic.replicas").tolist()
        comparison = Comparison(reports=[_report(row) for row in gathered])
        has_changed = False
        if comparison.are_alike:
            self._alike_at = step
            if step > comparison.went_back_from:
                self._went_back_from = NEVER
        else:
            has_changed = self._act(comparison, held, step, is_restorable=any(row[-1] for row in gathered))
        now = self._clock()
        self._due_at = now + (now - begun) / COST
        return has_changed

    def _act(self, comparison: Comparison, held: Replicated, step: int, *, is_restorable: bool) -> bool:
        """Do what is to be done about workers that differ. Returns whether the state of any was changed."""
        reference = comparison.reference
        difference = Difference.measure(held, reference, self._world)
        rates = self._world.allgather_object(dict(held.rates), name="hvd_elastic.replicas_rates")
        words = difference_words(comparison, difference, rates, self._objects, step)
        remedy = comparison.remedy(is_rounding=difference.is_rounding, is_of_shape=difference.is_of_shape)
        if self._mode is ReplicaMode.WARN and remedy is not Remedy.MEND:
            self._say_once(f"{words}. {likely_reason(comparison, difference, self._objects)}")
            return False
        if remedy is Remedy.STOP:
            raise ReplicaError(f"{words}. {likely_reason(comparison, difference, self._objects)} {ON_PURPOSE}")
        if remedy is Remedy.MEND:
            self._say_once(f"{words}: all go on with what rank {reference} has")
        elif remedy is Remedy.GO_BACK and not is_restorable:
            self._warn(f"{words}, and there is no checkpoint to go back to: all go on with what rank {reference} has")
            self._went_back_from = step
        else:
            leaving = comparison.differing if remedy is Remedy.LEAVE_OUT else ()
            self._part(leaving, reference, words, step, is_restorable=is_restorable)
        take_from(reference, difference.differing, held, self._world)
        return True

    def _part(self, leaving: Sequence[int], reference: int, words: str, step: int, *, is_restorable: bool) -> NoReturn:
        """End this world: all go back, but for the rank that leaves, if one does. The reference says so."""
        if self._world.rank() in leaving:
            logger.error("%s. Memory or a computation of this worker has failed, as far as anybody can tell", words)
            raise WorkerDiffers
        self._went_back_from, self._alike_at = step, NEVER
        if is_restorable:
            self._go_back()
        back = "the newest durable checkpoint, which was compared" if is_restorable else "the last commit"
        if self._world.rank() == reference:
            left = f"rank {leaving[0]} is left out, and all others" if leaving else "all"
            logger.warning("%s. %s go back to %s", words, left, back)
        raise HorovodInternalError(f"workers differ at step {step}")

    def _say_once(self, words: str) -> None:
        if not self._has_said:
            self._has_said = True
            self._warn(words)

    def _warn(self, words: str) -> None:
        if self._world.rank() == 0:
            logger.warning("%s", words)


def _report(row: list[int]) -> RankReport:
    tensors, rates, alike_at, went_back_from, _ = row
    return RankReport(tensors=tensors, rates=rates, alike_at=alike_at, went_back_from=went_back_from)
