"""The methods of a State that yield the data, epoch by epoch, and count its samples."""

import logging
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.collectives.library_worlds import prepared_loader
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.data import sample_proof
from hvd_elastic.trainer.data.batches import Batches, count_samples
from hvd_elastic.trainer.data.loaders.loader import Collate
from hvd_elastic.trainer.data.loaders.loader_options import merged_options
from hvd_elastic.trainer.data.pass_options import PassOptions, Prefetcher, moving
from hvd_elastic.trainer.data.progress import TRAIN, Progress, Samples
from hvd_elastic.trainer.state.commits import Commits
from hvd_elastic.trainer.state.durable.durable_tier import TierSettings
from hvd_elastic.trainer.state.durable.job_beginning import JobBeginning
from hvd_elastic.trainer.state.present_state import PresentState
from hvd_elastic.trainer.state.sharded_commits import ShardedCommits
from hvd_elastic.trainer.state.state_tree import Tree
from hvd_elastic.trainer.state.step_report import emit
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.console import say

logger = logging.getLogger(__name__)


class EpochsMixin:
    """Everything here is part of a commit: going back to a commit also goes back in the data."""

    epoch: int
    _batches: Batches
    _beginning: JobBeginning
    _commits: Commits
    _present: PresentState
    _settings: TierSettings
    _sharded: ShardedCommits

    @property
    def step_count(self) -> int:
        """Commits since the job began, over all its workers and restarts. That of the end of all epochs is none."""
        return self._present.progress.steps

    def remaining_epochs(self, total: int) -> Iterator[int]:
        """Yield the remaining epochs: `for state.epoch in state.remaining_epochs(20):`.

        The end of the body ends the epoch. An interrupted epoch is yielded again and its body runs from the top:
        `batches()` continues where it stopped and yields nothing where it had ended. A commit between two passes over
        the data, or after the last one, is made by the next commit within a pass or at the end of the body.
        At the end of all epochs the state is committed, if there is a durable tier, and rank 0 waits until that is
        durable. A job that is started again after that yields nothing, and says so.

        Args:
            total: number of epochs of the whole job, over all restarts.
        """
        if self.epoch >= total and self._beginning.restored_step == self.step_count:
            done = f"{count_words(total, 'epoch')} of training ended before this start, at step {self.step_count}"
            say(logger, f"{done}: nothing is left to train")
        while self.epoch < total:
            emit(events.Kind.EPOCH, self._present.progress, epoch=self.epoch)
            account = self._batches.account
            account.enter_epoch(self.epoch)
            self._batches.hints.begin_epoch()
            try:
                yield self.epoch
            finally:
                account.leave_epoch()
            self.epoch += 1
            if account.end_epoch():
                self._commit_now()
            certificate = self._batches.account.position.certificate
            if WORLD.rank() == 0 and certificate is not None:
                sample_proof.THIS_PROCESS.begin(certificate)
        if self._settings.configured and not _is_end(self._commits.last, self.epoch):
            self._commit_now(is_step=False)
        self._sharded.store_final()

    def once(self, name: str) -> bool:
        """Return True the first time in this epoch, over all resizes and restarts.

        What stands before or between the passes over the data is run again if training resumes within a later pass.
        `if state.once("scheduler"): scheduler.step()` is run once. The answer belongs to the next commit.

        Args:
            name: tells the places in the script apart.
        """
        self._batches.hints.once()
        return self._batches.account.once(name, self.epoch)

    def batches(
        self,
        dataset: Any,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        batches_per_step: int | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
        drop_last: bool | None = None,
        num_workers: int | None = None,
        max_steps: int | None = None,
        collate_fn: Collate | None = None,
        prefetcher: Prefetcher | None = None,
        name: str = TRAIN,
        **loading: Any,
    ) -> Iterator[Any]:
        """Return an iterator over the remaining batches of this worker in one pass over a data set.

        A resize neither skips nor repeats a sample. Each call in an epoch is a pass of its own, which is found again by
        its name and its number: after a resize the epoch's body must make the same calls in the same order.

        The sample counts include the batch that was yielded last: commit after its optimizer step, inside the loop.

        Args:
            dataset: map-style (`__getitem__`, `__len__`) or iterable, the same on every worker. An iterable one must
                yield the same samples in the same order on every worker. If it has `iterate_from(position)`, it is not
                read from its beginning after a resize. Or a DataLoader, torch's or torchdata's StatefulDataLoader: its
                data set, its sampler and its options are then used where nothing else is given here. Or what
                `accelerator.prepare` or `fabric.setup_dataloaders` has made of one: batches are moved to its device.
            batch_size: samples per step and worker. Give either this or `global_batch_size`.
            global_batch_size: samples per step over all workers. The job's own batch size (`HVD_ELASTIC_BATCH_GLOBAL`,
                `HVD_ELASTIC_BATCH_PER_WORKER`) takes precedence over both.
            micro_batch_size: most samples in one batch. A larger share of a step is yielded as several batches; then
                step the optimizer only when `accumulating` is False. Default None: the whole share at once.
            sampler: gives the order of the epoch, as indices: torch's, one of the script's own, or a list. It is drawn
                whole on every worker, with all generators seeded, so it must give the same order on each of them, and
                again after a resize. An index that it gives twice is taken twice. Default None: `shuffle` says.
            batch_sampler: gives the batches of the epoch, as lists of indices: a worker takes whole batches. In place
                of `batch_size`, `global_batch_size`, `micro_batch_size` and `sampler`. Default None.
            batches_per_step: batches of the `batch_sampler` per step over all workers; a worker's part of them is
                yielded one by one, as with `micro_batch_size`. Default None: one for each worker.
            shuffle: use another random order in each epoch. Default None: True, or what the DataLoader says. Ignored
                for an iterable data set, and if there is a sampler.
            seed: seed of the order, the same on every worker. Default 0.
            drop_last: leave out the last step of the epoch if it is incomplete. Default None: False, or what the
                DataLoader says.
            max_steps: most steps of this pass, over all resizes: use it in place of a counter and `break`, since the
                script's own counter begins anew after a resize. Default None: until the data is exhausted.
            num_workers: loader processes, as for torch's DataLoader. Default None: none, so that the training process
                loads, or what the DataLoader says.
            collate_fn: turns a list of samples into a batch. Default None: torch's `default_collate`.
            prefetcher: takes the iterator over the batches and returns one that yields as many in the same order, some
                of them in advance. A prefetcher around `batches()` itself would lose the batches that it holds when a
                resize comes. Default None.
            name: key of the sample counts (`samples_of`), for an epoch over several data sets. Default "train".
            loading: further options for torch's DataLoader: `pin_memory` (default: True if there is a GPU),
                `prefetch_factor` ...

        Raises:
            BatchError: no batch size, or one that cannot be used; a data set that can be read only once; one that has
                another length than when this pass was interrupted; a sampler or a stream that takes one worker's part
                itself, or has another order on another worker or after a resize.
        """
        given = {
            "batch_size": batch_size,
            "sampler": sampler,
            "batch_sampler": batch_sampler,
            "shuffle": shuffle,
            "drop_last": drop_last,
            "num_workers": num_workers,
            "collate_fn": collate_fn,
            **loading,
        }
        if (prepared := prepared_loader(dataset)) is not None:
            dataset, prefetcher = prepared.loader, moving(prepared.move, prefetcher)
            if prepared.splits_batches and batch_size is None and global_batch_size is None:
                global_batch_size = dataset.batch_size
        if isinstance(dataset, DataLoader):
            dataset, given = (
                dataset.dataset,
                merged_options(dataset, given, replaces_batches=global_batch_size is not None, name=name),
            )
        options = PassOptions.of_arguments(
            given,
            global_batch_size=global_batch_size,
            micro_batch_size=micro_batch_size,
            batches_per_step=batches_per_step,
            seed=seed,
            max_steps=max_steps,
            prefetcher=prefetcher,
            name=name,
        )
        return self._batches.batches(
            dataset,
            options,
            name=name,
            epoch=self.epoch,
            randomness=self._present.randomness,
            on_step=lambda: self._present.begin_step(options),
            on_end=lambda: self._batches.hints.pass_ended(self._present.counts()),
            commit=self._commit_now,
        )

    @property
    def weight(self) -> float:
        """The factor on the mean loss of this batch that makes the gradient that of the mean over the whole step.

        It is 1.0 if all shares are equal and not divided into micro-batches, and 0.0 for a sample that is only padding.

        Raises:
            StateError: an optimizer adds the workers' gradients up, which makes no mean of them.
        """
        self._present.check_weighted()
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
        committed = Progress.from_state_dict(last["progress"]).data if last is not None else None
        return count_samples(name, self._batches.account.position, committed)

    def _commit_now(self, *, is_step: bool = True) -> None:
        raise NotImplementedError


def _is_end(commit: Tree, epoch: int) -> bool:
    """Whether a commit says that the body of the last epoch has ended. Else the job, if it is started again from that
    commit, would run what stands behind the last pass a second time.
    """
    return commit is None or bool(commit["values"]["epoch"] == epoch)
