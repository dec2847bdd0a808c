"""How the batches of a batch sampler are dealt out to the workers: a pure function of position and world.

A batch stays whole: it is what one worker computes at once, however many samples are in it. A step takes the next
batches of the epoch, one for each worker or a fixed number over all of them, and each worker takes as equal a part of
them as possible. The position is the number of samples before the next batch, so it means the same in every world.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hvd_elastic.trainer.data.batch_policy import shares, weight
from hvd_elastic.trainer.data.sampler import MicroBatch, Order, Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The remaining steps of an epoch of batches, as one worker of a world sees them."""

    ends: Positions
    """The epoch's position after each batch."""
    position: int
    """Samples of the epoch that were already taken: those of whole batches."""
    rank: int
    size: int
    per_step: int | None = None
    """Batches of a step over all workers; None: one for each worker."""
    drop_last: bool = False
    """Leave out the last step if it has too few batches."""
    max_steps: int | None = None
    """Most steps that remain; None: until the batches are exhausted."""

    def micro_batches(self) -> Iterator[MicroBatch]:
        """Yield every micro-batch of this worker, in order: its batches."""
        steps = self._steps()
        for start in steps:
            yield from self._step(start, min(start + steps.step, steps.stop))

    def indices(self, order: Order) -> Iterator[list[int]]:
        """Yield the sample indices of every micro-batch, in the order of `micro_batches()`."""
        for each in self.micro_batches():
            yield order.at(np.arange(each.first, each.first + each.count, dtype=np.int64)).tolist()

    @property
    def end(self) -> int:
        """The position at which the pass ends, as long as the number of workers stays."""
        return self._begin(self._steps().stop)

    def _begin(self, batch: int) -> int:
        """The position before a batch."""
        return int(self.ends[batch - 1]) if batch else 0

    def _steps(self) -> range:
        """The first batch of each step; `step` is how many a step has, and `stop` is behind the last of all."""
        start, per_step = int(np.searchsorted(self.ends, self.position, side="right")), self.per_step or self.size
        batches = len(self.ends) - start
        if self.drop_last:
            batches -= batches % per_step
        if self.max_steps is not None:
            batches = min(batches, self.max_steps * per_step)
        return range(start, start + batches, per_step)

    def _step(self, start: int, stop: int) -> Iterator[MicroBatch]:
        """Yield this worker's micro-batches of the step that takes these batches."""
        parts = shares(stop - start, self.size)
        padding, own = parts.count(0), start + sum(parts[: self.rank])
        first, position = self._begin(start), self._begin(stop)
        if not parts[self.rank]:  # its peers wait for its gradients, so it repeats a sample with weight 0
            yield MicroBatch(count=1, weight=0.0, last=True, position=position, padding=padding, first=first)
        for batch in range(own, own + parts[self.rank]):
            begin = self._begin(batch)
            count = int(self.ends[batch]) - begin
            yield MicroBatch(
                count=count,
                weight=weight(count, position - first, self.size),
                last=batch == own + parts[self.rank] - 1,
                position=position,
                padding=padding,
                first=begin,
            )
