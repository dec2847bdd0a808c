"""The data of an epoch, given out batch by batch, and the account of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.loader import Collate, is_iterable, load
from hvd_elastic.trainer.data.sampler import EpochPlan, Part, SampleOrder
from hvd_elastic.trainer.state.progress import Cursor, Progress, Samples

_BETWEEN: Final = Part(count=0, weight=1.0, last=True, position=0, padding=0)


class Batches:
    """Gives batches out and moves the cursors in a progress that its owner keeps."""

    def __init__(self) -> None:
        self.part = _BETWEEN
        """What was given out last."""

    def forget(self) -> None:
        """Training goes on from somewhere else."""
        self.part = _BETWEEN

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
        """What is left of the cursor's epoch. The cursor moves as a batch is given, once for all batches of a step."""
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
        for batch, self.part in load(plan, dataset, order, collate_fn, **loader_options):
            if self.part.last:
                cursor.position = self.part.position
                cursor.padded += self.part.padding
            yield batch
        self.part = _BETWEEN
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


def account(live: Cursor, committed: Cursor | None) -> Samples:
    """What became of an epoch's samples; `committed` is the cursor of the last commit, of any epoch."""
    seen = committed.position if committed is not None and committed.epoch == live.epoch else 0
    return Samples(
        epoch=live.epoch,
        due=live.length,
        seen=seen,
        uncommitted=live.position - seen,
        padded=live.padded,
        repeated=live.repeated,
    )
