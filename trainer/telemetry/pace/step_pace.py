"""What a process does in a step, in seconds: it computes, it waits for data, it waits for others.

Training in lockstep takes as long as its slowest rank, so each rank's steps are equally long, and only what it does
before it waits tells who is slow. What a commit itself takes is left out: rank 0's is longer, because it stores.

A step costs three looks at the clock and a few additions; a block costs the sorting of its steps.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from hvd_elastic.trainer.collectives.collective_calls import WAITED, WaitedTime

T = TypeVar("T")

BLOCK_SECONDS: Final = 5.0
"""Of a block. A slow rank is to be known within a minute, from eight of them."""
SETTLING_SECONDS: Final = 10.0
SETTLING_STEPS: Final = 3
"""That do not count at the start of a world, both: caches fill, and compilers and autotuners run."""
_ACCELERATORS: Final = ("cuda", "xpu", "hpu", "npu", "mtia")
"""Modules of torch, or of its vendors' plugins, each with `is_initialized()`."""
_MOST_STEPS: Final = 1000
"""Of a block that are looked at: the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceBlock:
    """Some steps in a row. Seconds are those of one step."""

    unix: float
    """The end."""
    steps: int
    step_seconds: float
    """From commit to commit."""
    computing: float
    """The median: a step with an evaluation in it, or a save, is none like the others."""
    loading: float | None
    """The mean, because loaders that work ahead make some steps wait for many. None: the script loads by itself."""


def trains_on_accelerator() -> bool:
    """Whether this process has begun to use one through torch."""
    torch = sys.modules.get("torch")
    devices = [getattr(torch, kind, None) for kind in _ACCELERATORS]
    return any(device is not None and bool(device.is_initialized()) for device in devices)


class StepPace:
    """The steps of one process. One thread trains."""

    def __init__(
        self,
        *,
        waited: WaitedTime = WAITED,
        is_blind: Callable[[], bool] = trains_on_accelerator,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`is_blind`: whether the host's clock does not see the computing, as a GPU's, whose kernels are queued."""
        self._waited, self._is_blind, self._clock, self._wall = waited, is_blind, clock, wall
        self._loaded = 0.0
        """Seconds that the training thread has waited for data, all together."""
        self._has_loaded = False
        self._computing: list[float] = []
        self._loading = 0.0
        self._steps = 0
        self._settled: float | None = None
        """When the steps of this world begin to count; None: there is no world."""
        self._to_settle = 0
        self._block_began = self._began = self._waited_before = self._loaded_before = 0.0

    def enter_world(self) -> None:
        """Forget what was measured: another world, or the first one, begins."""
        self._settled, self._to_settle = self._clock() + SETTLING_SECONDS, SETTLING_STEPS
        self._has_loaded = False
        self._begin_block(self._clock())
        self.begin_step()

    def begin_step(self) -> None:
        """The commit of the step before is over."""
        self._began, self._waited_before, self._loaded_before = self._clock(), self._waited.seconds, self._loaded

    def end_step(self) -> PaceBlock | None:
        """A commit begins. Returns the block that is full with this step."""
        now = self._clock()
        if self._settled is None:
            return None
        if now < self._settled or self._to_settle > 0:
            self._to_settle -= 1
            self._begin_block(now)
            return None
        self._steps += 1
        loading = self._loaded - self._loaded_before
        self._loading += loading
        if len(self._computing) < _MOST_STEPS:
            waiting = self._waited.seconds - self._waited_before
            self._computing.append(max(0.0, now - self._began - waiting - loading))
        return self._block(now) if now - self._block_began >= BLOCK_SECONDS else None

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the same items, and count the time until each is there as loading."""
        self._has_loaded = True
        while True:
            began, waited = self._clock(), self._waited.seconds
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self._loaded += self._clock() - began - (self._waited.seconds - waited)
            yield item

    def _block(self, now: float) -> PaceBlock | None:
        seconds, steps, computing, loading = now - self._block_began, self._steps, self._computing, self._loading
        self._begin_block(now)
        if self._is_blind():
            return None
        return PaceBlock(
            unix=self._wall(),
            steps=steps,
            step_seconds=seconds / steps,
            computing=statistics.median(computing),
            loading=loading / steps if self._has_loaded else None,
        )

    def _begin_block(self, now: float) -> None:
        self._block_began, self._computing, self._loading, self._steps = now, [], 0.0, 0


THIS_PROCESS: Final = StepPace()
"""Batches tell it of loading, and a State of steps: a script makes each without the other."""
