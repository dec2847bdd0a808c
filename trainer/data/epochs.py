"""The methods of a State that yield the data, epoch by epoch, and count its samples."""

from collections.abc import Iterator
from typing import Any, Final

import horovod.torch as hvd

from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.batches import Batches, count_samples
from hvd_elastic.trainer.data.loader import Collate
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.optimizer_hooks import OptimizerHooks
from hvd_elastic.trainer.state.progress import Cursor, Progress, Samples
from hvd_elastic.trainer.telemetry import events

TRAIN: Final = "train"


class EpochsMixin:
    """Everything here is part of a commit: going back to a commit also goes back in the data."""

    epoch: int
    _commits: Commits
    _batches: Batches
    _progress: Progress
    _optimizer_hooks: OptimizerHooks

    def remaining_epochs(self, total: int) -> Iterator[int]:
        """Yield the remaining epochs: `for state.epoch in state.remaining_epochs(20):`.

        An interrupted epoch is yielded again, and `batches()` continues where it stopped. An epoch whose data was
        exhausted at the last commit is not. At the end, rank 0 waits until the last commit is durable.

        Args:
            total: number of epochs of the whole job, over all restarts.
        """
        if self._progress.epoch_done:
            self._next_epoch()
        while self.epoch < total:
            self._emit(events.Kind.EPOCH, epoch=self.epoch)
            yield self.epoch
            self._next_epoch()
        self._commits.save_final()

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
        """Yield the remaining batches of this worker in this epoch. A resize neither skips nor repeats a sample.

        The sample counts include the batch that was yielded last: commit after its optimizer step, inside the loop.

        Args:
            dataset: map-style (`__getitem__`, `__len__`) or iterable, the same on every worker. An iterable one must
                yield the same samples in the same order on every worker. If it has `iterate_from(position)`, it is not
                read from its beginning after a resize.
            batch_size: samples per step and worker. Give either this or `global_batch_size`.
            global_batch_size: samples per step over all workers. The job's own batch size (`HVD_ELASTIC_BATCH_GLOBAL`,
                `HVD_ELASTIC_BATCH_PER_WORKER`) takes precedence over both.
            micro_batch_size: most samples in one batch. A larger share of a step is yielded as several batches; then
                step the optimizer only when `accumulating` is False. Default None: the whole share at once.
            shuffle: use another random order in each epoch. Default True. Ignored for an iterable data set.
            seed: seed of the order, the same on every worker. Default 0.
            drop_last: leave out the last step of the epoch if it is incomplete. Default False.
            num_workers: loader processes, as for torch's DataLoader. Default 0: load in the training process.
            collate_fn: turns a list of samples into a batch. Default None: torch's `default_collate`.
            name: key of the sample counts (`samples_of`), for an epoch over several data sets. Default "train".
            options: further options for torch's DataLoader: `pin_memory` (default: True if there is a GPU),
                `prefetch_factor` ...

        Raises:
            BatchError: no batch size, or one that cannot be used.
        """
        policy = BatchPolicy.choose(global_size=global_batch_size, per_worker=batch_size, micro=micro_batch_size)
        if policy.micro is not None:
            self._optimizer_hooks.set_backward_passes(-(-policy.share(hvd.rank(), hvd.size()) // policy.micro) or 1)
        yield from self._batches.batches(
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
        """The factor on the mean loss of this batch that makes the gradient that of the mean over the whole step.

        It is 1.0 if all shares are equal and not divided into micro-batches, and 0.0 for a sample that is only padding.
        """
        return self._batches.current.weight

    @property
    def accumulating(self) -> bool:
        """Whether more micro-batches of this step follow, so that the optimizer must not step yet."""
        return not self._batches.current.last

    @property
    def samples(self) -> Samples:
        """The sample counts of this epoch, for the data set named "train"."""
        return self.samples_of(TRAIN)

    def samples_of(self, name: str) -> Samples:
        """Return the sample counts of this epoch.

        Args:
            name: the data set's name, as given to `batches`.
        """
        last = self._commits.last
        committed = Progress.from_state_dict(last["progress"]) if last is not None else Progress()
        return count_samples(self._progress.cursors.get(name, Cursor(epoch=self.epoch)), committed.cursors.get(name))

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
