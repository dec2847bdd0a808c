"""The part of a State that gives the data out, epoch by epoch, and accounts for it."""

from collections.abc import Iterator
from typing import Any, Final

import horovod.torch as hvd

from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.batches import Batches, account
from hvd_elastic.trainer.data.loader import Collate
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.optimizer_hooks import OptimizerHooks
from hvd_elastic.trainer.state.progress import Cursor, Progress, Samples
from hvd_elastic.trainer.telemetry import events

TRAIN: Final = "train"


class Epochs:
    """Everything here moves with the commit: going back to one goes back in the data too."""

    epoch: int
    _commits: Commits
    _feed: Batches
    _progress: Progress
    _stepping: OptimizerHooks

    def remaining_epochs(self, total: int) -> Iterator[int]:
        """The epochs that are left of `total`, as `for state.epoch in state.remaining_epochs(20):`.

        An epoch that was interrupted comes again, and `batches()` goes on where it stood. One whose data was
        exhausted at the last commit does not.
        """
        if self._progress.epoch_done:
            self._next_epoch()
        while self.epoch < total:
            self._emit(events.Kind.EPOCH, epoch=self.epoch)
            yield self.epoch
            self._next_epoch()
        self._commits.durable.flush()

    def batches(
        self,
        dataset: Any,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        name: str = TRAIN,
        **options: Any,
    ) -> Iterator[Any]:
        """What is left of this epoch's data for this worker, batch by batch. Every sample is taken once, over any
        resizes.

        The account stands at the batch that was given last: commit after its optimizer step, inside the loop.

        Args:
            dataset: map-style or iterable (see `loader.load`), the same on every worker.
            batch_size: samples per step and worker.
            global_batch_size: samples per step over all workers, instead. The job's policy comes before both.
            micro_batch_size: most samples at once; a larger share is given in several batches. Then step the optimizer
                only where `accumulating` is false.
            shuffle: another order in each epoch, from `seed`.
            seed: of the order; the same on every worker.
            drop_last: leave a last step out that is not whole.
            num_workers: loader processes.
            collate_fn: samples to a batch.
            name: of the account, where an epoch goes over several data sets.
            options: for torch's DataLoader.

        Raises:
            BatchError: no usable batch size.
        """
        policy = BatchPolicy.choose(global_size=global_batch_size, per_worker=batch_size, micro=micro_batch_size)
        if policy.micro is not None:
            self._stepping.expect_passes(-(-policy.share(hvd.rank(), hvd.size()) // policy.micro) or 1)
        yield from self._feed.batches(
            self._progress,
            self._cursor(name),
            dataset,
            policy=policy,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            collate_fn=collate_fn,
            options={"num_workers": num_workers, **options},
        )

    @property
    def weight(self) -> float:
        """What the mean loss of this batch is multiplied with, so that the gradient is that of the mean over the
        whole step.

        1.0 wherever all shares are equal.
        """
        return self._feed.part.weight

    @property
    def accumulating(self) -> bool:
        """Whether further micro-batches of this step follow: do not step the optimizer yet."""
        return not self._feed.part.last

    @property
    def samples(self) -> Samples:
        """The account of this epoch's samples."""
        return self.samples_of(TRAIN)

    def samples_of(self, name: str) -> Samples:
        """The account of the data set that was given this name."""
        last = self._commits.last
        committed = Progress.from_state_dict(last["progress"]) if last is not None else Progress()
        return account(self._progress.cursors.get(name, Cursor(epoch=self.epoch)), committed.cursors.get(name))

    def _emit(self, kind: events.Kind, **fields: object) -> None:
        events.emit(kind, rank=hvd.rank(), size=hvd.size(), step=self._progress.commits, **fields)

    def _next_epoch(self) -> None:
        self.epoch += 1
        self._progress.epoch_done = False

    def _cursor(self, name: str) -> Cursor:
        cursor = self._progress.cursors.get(name)
        if cursor is None or cursor.epoch != self.epoch:
            cursor = self._progress.cursors[name] = Cursor(epoch=self.epoch)
        return cursor
