"""The data of an epoch, pass by pass and batch by batch, and its sample counts."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.data.batch_policy import BatchError
from hvd_elastic.trainer.data.certified_pass import SampleHash
from hvd_elastic.trainer.data.drawn_order import SAMPLER_WAY_OUT, DrawnOrder
from hvd_elastic.trainer.data.loaders.library_stream import order_of, set_epoch
from hvd_elastic.trainer.data.loaders.loader import is_iterable, load
from hvd_elastic.trainer.data.loop_hints import LoopHints
from hvd_elastic.trainer.data.order_check import check_order
from hvd_elastic.trainer.data.pass_options import PassOptions, Plan, Prefetcher, plan_pass, plan_samples
from hvd_elastic.trainer.data.passes import NO_BATCH, EpochAccount, Pass
from hvd_elastic.trainer.data.progress import Cursor, EpochPosition, Samples
from hvd_elastic.trainer.data.randomness import PassSeeds, Randomness
from hvd_elastic.trainer.data.sampler import MicroBatch, SampleOrder
from hvd_elastic.trainer.telemetry.pace import step_pace


class Batches:
    """Yields batches and moves the position in the data."""

    def __init__(self, world: TrainingWorld = WORLD) -> None:
        self._world = world
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

        Raises:
            BatchError: the data set or an option cannot be used.
        """
        options.validate(dataset, name=name)
        called = self.account.call(name, epoch)
        if not is_iterable(dataset) and not options.draws_order:
            _set_length(called.cursor, len(dataset), name=name)
        seeds = randomness.of_pass(name, epoch, called.path)
        pairs = _load(called, dataset, options, epoch=epoch, seeds=seeds, world=self._world)
        certify = partial(self._certify, called, dataset, options)
        return self._run(called, pairs, options, certify=certify, on_step=on_step, on_end=on_end, commit=commit)

    def _certify(self, called: Pass, dataset: Any, options: PassOptions) -> None:
        """Nothing certifies an order that a sampler draws: it may hold a sample several times."""
        if not options.draws_order:
            shuffle = None if is_iterable(dataset) else options.shuffle
            self.account.certify(called, seed=options.seed, shuffle=shuffle)

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
            for batch, micro_batch in step_pace.THIS_PROCESS.timed(pairs):
                yielded.remove(run)
                yielded.append(run)
                if not run.in_batch:
                    on_step()
                run.take(micro_batch)
                if self._world.rank() == 0:  # all run the same script, and a newcomer would keep the others waiting
                    self.hints.batch_yielded(run.name, is_limited=options.max_steps is not None)
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
    called: Pass, dataset: Any, options: PassOptions, *, epoch: int, seeds: PassSeeds | None, world: TrainingWorld
) -> Iterator[tuple[Any, MicroBatch]]:
    """Yield what is left of a pass. Nothing is loaded before the first batch is asked for."""
    cursor, rank, size = called.cursor, world.rank(), world.size()
    plan: Plan
    order: SampleOrder | DrawnOrder | None = None
    if is_iterable(dataset):
        plan = plan_samples(cursor, options, rank=rank, size=size)
        set_epoch(dataset, epoch)
    else:
        plan, order = plan_pass(cursor, options, epoch=epoch, path=called.path, name=called.name, rank=rank, size=size)
        cursor.planned = plan.end
    _compare(order, dataset, cursor, options, name=called.name, world=world)
    loading = {"pin_memory": torch.cuda.is_available(), **options.loading}
    hashed = None if called.certified is None else SampleHash(name=called.name, epoch=epoch)
    pairs = load(plan, dataset, order, options.collate_fn, seeds, hashed=hashed, **loading)
    if options.prefetcher is not None:
        pairs = _prefetched(pairs, options.prefetcher)
    yield from pairs if seeds is None else seeds.of_steps(pairs, rank)


def _compare(
    order: SampleOrder | DrawnOrder | None,
    dataset: Any,
    cursor: Cursor,
    options: PassOptions,
    *,
    name: str,
    world: TrainingWorld,
) -> None:
    """Look whether all workers have the order with which the pass was begun. Raises BatchError."""
    if isinstance(order, DrawnOrder):
        kind = type(options.sampler if options.sampler is not None else options.batch_sampler).__name__
        check_order(order, cursor, name=name, what=f"the {kind}", way_out=SAMPLER_WAY_OUT, world=world)
        return
    library = order_of(dataset)
    if library is not None:
        check_order(library, cursor, name=name, what=library.what, way_out=library.way_out, world=world)
    else:
        check_order(None, cursor, name=name, what="", way_out="", world=world)


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


def _set_length(cursor: Cursor, length: int, *, name: str) -> None:
    if cursor.ended:
        return
    if cursor.position and cursor.length not in (None, length):
        raise BatchError(
            f"batches({name!r}): the data set has {count_words(length, 'sample')}, but this epoch was begun with "
            f"{cursor.length}, of which {cursor.position} were taken: continue with the same data set, or begin the "
            "next epoch (state.epoch += 1) with the other one"
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
        raise BatchError(f"prefetcher: it was exhausted while it still held {count_words(len(ahead), 'batch')}")
