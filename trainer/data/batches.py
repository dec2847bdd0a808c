"""The data of an epoch, pass by pass and batch by batch, and its sample counts."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch

from hvd_elastic.trainer.data.batch_policy import BatchError, BatchPolicy
from hvd_elastic.trainer.data.loader import Collate, is_iterable, is_one_shot, load
from hvd_elastic.trainer.data.loop_hints import LoopHints
from hvd_elastic.trainer.data.passes import NO_BATCH, EpochAccount, Pass
from hvd_elastic.trainer.data.randomness import PassSeeds, Randomness
from hvd_elastic.trainer.data.sample_certificate import SampleHash
from hvd_elastic.trainer.data.sampler import EpochPlan, MicroBatch, SampleOrder, derived_seed
from hvd_elastic.trainer.state.progress import Cursor, EpochPosition, Samples

Prefetcher = Callable[[Iterator[Any]], Iterable[Any]]
"""Takes the batches and yields as many, in the same order: on a device, or some of them in advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """How the data of a pass is divided and loaded; see `State.batches`."""

    policy: BatchPolicy
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    max_steps: int | None = None
    collate_fn: Collate | None = None
    prefetcher: Prefetcher | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    """For torch's DataLoader."""


class Batches:
    """Yields batches and moves the position in the data."""

    def __init__(self) -> None:
        self.account = EpochAccount(EpochPosition())
        self.hints = LoopHints()
        self._yielded: list[Pass] = []
        """The passes under way. The last one has yielded last."""

    @property
    def current(self) -> MicroBatch:
        """The micro-batch that was yielded last, of the passes under way."""
        return self._yielded[-1].current if self._yielded else NO_BATCH

    def go_to(self, position: EpochPosition) -> None:
        """Continue from this position, with the body of its epoch from the top. Passes under way are given up."""
        self.account = EpochAccount(position)
        self.hints.begin_epoch()
        self._yielded = []

    def defer_commit(self) -> None:
        """Put a commit off until the end of the present body."""
        self.account.defer()
        if self.account.is_between_passes:
            self.hints.commit_deferred()

    def batches(
        self,
        dataset: Any,
        options: PassOptions,
        *,
        name: str,
        epoch: int,
        randomness: Randomness,
        on_step: Callable[[], None],
        on_end: Callable[[], None],
        commit: Callable[[], None],
    ) -> Iterator[Any]:
        """Return an iterator over what is left of a pass.

        Args:
            dataset: see `State.batches`.
            options: how it is divided and loaded.
            name: name of the pass.
            epoch: the present epoch.
            randomness: gives the pass its seeds.
            on_step: called before the first batch of each step.
            on_end: called when no pass is under way any more.
            commit: makes a commit that was deferred.

        Raises:
            BatchError: the data set or an option cannot be used.
        """
        _validate(dataset, options, name=name)
        called = self.account.call(name, epoch)
        if not is_iterable(dataset):
            _set_length(called.cursor, len(dataset), name=name)
        seeds = randomness.of_pass(name, epoch, called.path)
        pairs = _load(called, dataset, options, epoch=epoch, seeds=seeds)
        shuffle = None if is_iterable(dataset) else options.shuffle
        certify = partial(self.account.certify, called, seed=options.seed, shuffle=shuffle)
        return self._run(called, pairs, options, certify=certify, on_step=on_step, on_end=on_end, commit=commit)

    def _run(
        self,
        run: Pass,
        pairs: Iterator[tuple[Any, MicroBatch]],
        options: PassOptions,
        *,
        certify: Callable[[], None],
        on_step: Callable[[], None],
        on_end: Callable[[], None],
        commit: Callable[[], None],
    ) -> Iterator[Any]:
        account, yielded = self.account, self._yielded
        account.begin(run)
        certify()
        yielded.append(run)
        try:
            if run.cursor.ended:
                return
            for batch, micro_batch in pairs:
                yielded.remove(run)
                yielded.append(run)
                if not run.in_batch:
                    on_step()
                run.take(micro_batch)
                yield batch
                if account.leave_step(run):
                    commit()
            if run.cursor.length is None and (options.max_steps is None or run.cursor.steps < options.max_steps):
                run.cursor.length = run.cursor.position
        finally:
            yielded.remove(run)
            account.end(run)
            if account.is_between_passes and account is self.account:
                on_end()


def _load(
    called: Pass, dataset: Any, options: PassOptions, *, epoch: int, seeds: PassSeeds | None
) -> Iterator[tuple[Any, MicroBatch]]:
    """Yield what is left of a pass. Nothing is loaded before the first batch is asked for."""
    cursor = called.cursor
    plan = EpochPlan(
        length=cursor.length or 0,
        position=cursor.position,
        policy=options.policy,
        rank=hvd.rank(),
        size=hvd.size(),
        drop_last=options.drop_last,
        max_steps=options.max_steps - cursor.steps if options.max_steps is not None else None,
    )
    order = None
    if cursor.length is not None:
        cursor.planned = plan.end
    if is_iterable(dataset):
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)
    else:
        seed = derived_seed(options.seed, called.path)
        order = SampleOrder(plan.length, seed=seed, epoch=epoch, shuffle=options.shuffle)
    loading = {"pin_memory": torch.cuda.is_available(), **options.loading}
    hashed = None if called.certified is None else SampleHash(name=called.name, epoch=epoch)
    pairs = load(plan, dataset, order, options.collate_fn, seeds, hashed=hashed, **loading)
    if options.prefetcher is not None:
        pairs = _prefetched(pairs, options.prefetcher)
    yield from pairs if seeds is None else seeds.of_steps(pairs, plan)


def count_samples(name: str, live: EpochPosition, committed: EpochPosition | None) -> Samples:
    """Count an epoch's samples over all passes of this name. `committed` may be of another epoch."""
    cursors = list(live.cursors(name))
    dues = [cursor.due for cursor in cursors]
    seen = 0
    if committed is not None and committed.epoch == live.epoch:
        seen = sum(cursor.position for cursor in committed.cursors(name))
    return Samples(
        epoch=live.epoch,
        due=None if None in dues or not dues else sum(due or 0 for due in dues),
        seen=seen,
        uncommitted=sum(cursor.position for cursor in cursors) - seen,
        padded=sum(cursor.padded for cursor in cursors),
        repeated=sum(cursor.repeated for cursor in cursors),
    )


def _validate(dataset: Any, options: PassOptions, *, name: str) -> None:
    if options.max_steps is not None and options.max_steps < 1:
        raise BatchError(f"batches({name!r}): max_steps: {options.max_steps} is below 1")
    if is_one_shot(dataset):
        raise BatchError(
            f"batches({name!r}): a {type(dataset).__name__} can be read only once, so training could not continue "
            "after a resize: give a data set whose __iter__ begins anew (a torch IterableDataset), or a list"
        )
    if not is_iterable(dataset) and not hasattr(dataset, "__len__"):
        raise BatchError(f"batches({name!r}): a {type(dataset).__name__} has __getitem__ but no __len__")


def _set_length(cursor: Cursor, length: int, *, name: str) -> None:
    if cursor.ended:
        return
    if cursor.position and cursor.length not in (None, length):
        raise BatchError(
            f"batches({name!r}): the data set has {length} samples, but this epoch was begun with {cursor.length}, "
            f"of which {cursor.position} were taken: continue with the same data set, or begin the next epoch "
            "(state.epoch += 1) with the other one"
        )
    cursor.length = length


def _prefetched(pairs: Iterator[tuple[Any, MicroBatch]], prefetcher: Prefetcher) -> Iterator[tuple[Any, MicroBatch]]:
    """Yield what the prefetcher yields. A batch counts as taken when it leaves the prefetcher, not when it enters."""
    ahead: deque[MicroBatch] = deque()

    def batches() -> Iterator[Any]:
        for batch, micro_batch in pairs:
            ahead.append(micro_batch)
            yield batch

    for batch in prefetcher(batches()):
        if not ahead:
            raise BatchError("prefetcher: it yielded more batches than it was given")
        yield batch, ahead.popleft()
    if ahead:
        raise BatchError(f"prefetcher: it was exhausted while it still held {len(ahead)} batches")
