"""Warnings about loops that would lose samples or repeat work at a resize, where that can be seen without one."""

import gc
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, cycle, islice
from types import FrameType, GeneratorType
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
ISLICE: Final = (
    "islice around state.batches(...) begins its count anew after a resize, so that it takes more steps than it was "
    "told. Write state.batches(..., max_steps=...), which counts over all resizes."
)
CYCLE: Final = (
    "cycle around state.batches(...) repeats batches that state.batches does not count, and after a resize only what "
    "was left of the data. Call state.batches(...) again for each round, and add 1 to state.epoch."
)
MANY_COMMITS: Final = 20
"""An evaluation and a scheduler need a few. So many are those of a training loop."""


_PLAIN: Final = (enumerate, zip, map, filter, chain, islice, cycle, tuple)
"""Iterators of Python that may stand between one and the batches; `zip` keeps its own in a tuple."""


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
        self._looked: set[str] = set()
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

    def batch_yielded(self, name: str, *, is_limited: bool) -> None:
        """A pass of this name is about to yield a batch. Looks once for each name, which takes some ten milliseconds.

        `is_limited`: it has `max_steps`.
        """
        if name not in self._looked:
            self._looked.add(name)
            kinds = _kinds_around(sys._getframe(1))
            if islice in kinds and not is_limited:
                self._give(ISLICE)
            if cycle in kinds:
                self._give(CYCLE)

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


def _kinds_around(frame: FrameType) -> set[type]:
    """Which of `islice` and `cycle` ask for what this frame, or one that has called it, is about to yield."""
    running: set[FrameType] = set()
    caller: FrameType | None = frame
    while caller is not None:
        running.add(caller)
        caller = caller.f_back
    # They are written in C, and have no frame of their own.
    return {type(each) for each in gc.get_objects() if type(each) in (islice, cycle) and _takes_from(each, running)}


def _takes_from(iterator: object, running: set[FrameType]) -> bool:
    for source in gc.get_referents(iterator):
        if isinstance(source, GeneratorType):
            if source.gi_running and source.gi_frame in running:
                return True
        elif type(source) in _PLAIN and _takes_from(source, running):
            return True
    return False
