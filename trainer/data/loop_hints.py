"""Warnings about loops that would lose samples or repeat work at a resize, where that can be seen without one."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from torch.optim.lr_scheduler import LRScheduler

logger = logging.getLogger(__name__)

PREFETCHER: Final = (
    "an optimizer stepped after the data of state.batches(...) was exhausted: a prefetcher around it loses the batches "
    "that it holds when a resize comes. Give it to batches: state.batches(..., prefetcher=...)."
)
SCHEDULER: Final = (
    "a scheduler stepped between two passes over data: after a resize within the second pass it would step again. "
    'Write `if state.once("scheduler"): scheduler.step()`.'
)

DEFERRED: Final = (
    "commits wait for the end of the epoch, because its last pass over data has ended: until then no worker can join "
    "or leave, and a failure repeats what is done here. Training that takes its samples elsewhere belongs before the "
    "first call of state.batches(...) in an epoch."
)
MANY_COMMITS: Final = 20
"""An evaluation and a scheduler need a few. So many are those of a training loop."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How often optimizers and schedulers have stepped."""

    optimizer_steps: int
    scheduler_steps: tuple[int, ...]

    @classmethod
    def of(cls, objects: Iterable[object], *, optimizer_steps: int) -> "Counts":
        """Count the steps of the schedulers among `objects`."""
        schedulers = (each for each in objects if isinstance(each, LRScheduler))
        return cls(optimizer_steps, tuple(scheduler.last_epoch for scheduler in schedulers))


class LoopHints:
    """Looks at what happens between the passes of an epoch. Each warning is given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the epoch before: the body runs from its top."""
        self._before: Counts | None = None
        self._commits = 0
        self._scheduler_stepped = False

    def pass_ended(self, counts: Counts) -> None:
        """No pass is under way any more."""
        self._before, self._commits, self._scheduler_stepped = counts, 0, False

    def once(self) -> None:
        """The script takes care of what stands here."""
        self._before = None

    def step_begun(self, count: Callable[[], Counts]) -> None:
        """A pass yields a batch."""
        if self._before is not None:
            self._scheduler_stepped = count().scheduler_steps != self._before.scheduler_steps
            self._before = None

    def commit(self, count: Callable[[], Counts]) -> None:
        """The script commits."""
        if self._before is not None:
            if count().optimizer_steps > self._before.optimizer_steps:
                self._give(PREFETCHER)
        elif self._scheduler_stepped:
            self._give(SCHEDULER)

    def commit_deferred(self) -> None:
        """A commit of the script waits."""
        self._commits += 1
        if self._commits == MANY_COMMITS:
            self._give(DEFERRED)

    def _give(self, hint: str) -> None:
        if hint not in self._given:
            self._given.add(hint)
            logger.warning(hint)
