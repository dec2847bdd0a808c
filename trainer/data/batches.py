"""The data of an epoch, batch by batch, and its sample counts."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.loader import Collate, is_iterable, load
from hvd_elastic.trainer.data.sampler import EpochPlan, MicroBatch, SampleOrder
from hvd_elastic.trainer.state.progress import Cursor, Progress, Samples

_NO_BATCH: Final = MicroBatch(count=0, weight=1.0, last=True, position=0, padding=0)


class Batches:
    """Yields batches and moves the cursors of a Progress that belongs to the caller."""

    def __init__(self) -> None:
        self.current = _NO_BATCH
        """The micro-batch that was yielded last."""

    def reset(self) -> None:
        """Forget the last micro-batch: training continues from another position."""
        self.current = _NO_BATCH

    def batches(
        self,
        progress: Progress,
        cursor: Cursor,
        dataset: Any,
        *,
        policy: BatchPolicy,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        collate_fn: Collate | None,
        options: Mapping[str, Any],
    ) -> Iterator[Any]:
        """Yield what is left of the cursor's epoch. The cursor moves when the last micro-batch of a step is yielded."""
        order = self._order(cursor, dataset, seed=seed, shuffle=shuffle)
        plan = EpochPlan(
            length=cursor.length or 0,
            position=cursor.position,
            policy=policy,
            rank=hvd.rank(),
            size=hvd.size(),
            drop_last=drop_last,
        )
        progress.epoch_done = False
        loader_options = {"pin_memory": torch.cuda.is_available(), **options}
        for batch, self.current in load(plan, dataset, order, collate_fn, **loader_options):
            if self.current.last:
                cursor.position = self.current.position
                cursor.padded += self.current.padding
            yield batch
        self.current = _NO_BATCH
        if order is None:
            cursor.length = cursor.position
        progress.epoch_done = True

    @staticmethod
    def _order(cursor: Cursor, dataset: Any, *, seed: int, shuffle: bool) -> SampleOrder | None:
        if is_iterable(dataset):
            if hasattr(dataset, "set_epoch"):
                dataset.set_epoch(cursor.epoch)
            return None
        cursor.length = len(dataset)
        return SampleOrder(cursor.length, seed=seed, epoch=cursor.epoch, shuffle=shuffle)


def count_samples(live: Cursor, committed: Cursor | None) -> Samples:
    """Count an epoch's samples. `committed` is the cursor of the last commit, which may be of another epoch."""
    seen = committed.position if committed is not None and committed.epoch == live.epoch else 0
    return Samples(
        epoch=live.epoch,
        due=live.length,
        seen=seen,
        uncommitted=live.position - seen,
        padded=live.padded,
        repeated=live.repeated,
    )
