"""How the data of a pass is divided and loaded: the arguments of `State.batches`, and what they come to in a world."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from hvd_elastic.mpijob.contract import ENV_BATCH_GLOBAL, ENV_BATCH_PER_WORKER
from hvd_elastic.trainer.data.batch_plan import BatchPlan
from hvd_elastic.trainer.data.batch_policy import BatchError, BatchPolicy, micro_batch_sizes, shares
from hvd_elastic.trainer.data.drawn_order import DrawnOrder, Need, draw, draw_batches
from hvd_elastic.trainer.data.loaders.library_stream import problem_of
from hvd_elastic.trainer.data.loaders.loader import Collate, is_iterable, is_one_shot
from hvd_elastic.trainer.data.progress import Cursor
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder, derived_seed

Prefetcher = Callable[[Iterator[Any]], Iterable[Any]]
"""Takes the batches and yields as many, in the same order: on a device, or some of them in advance."""

Plan = EpochPlan | BatchPlan

_OWN: Final = ("batch_size", "sampler", "batch_sampler", "shuffle", "drop_last", "collate_fn")
"""Options of a DataLoader that the plan takes; the others are handed on to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """How the data of a pass is divided and loaded; see `State.batches`."""

    policy: BatchPolicy | None
    """None: the batches are those of `batch_sampler`."""
    sampler: Any = None
    batch_sampler: Any = None
    batches_per_step: int | None = None
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    max_steps: int | None = None
    collate_fn: Collate | None = None
    prefetcher: Prefetcher | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    """For torch's DataLoader."""

    @classmethod
    def of_arguments(
        cls,
        given: Mapping[str, Any],
        *,
        global_batch_size: int | None,
        micro_batch_size: int | None,
        batches_per_step: int | None,
        seed: int,
        max_steps: int | None,
        prefetcher: Prefetcher | None,
        name: str,
    ) -> Self:
        """Read the arguments of `State.batches`. Raises BatchError.

        `given`: those that a DataLoader could have given too, by name; None where nobody has.
        """
        loading = {each: value for each, value in given.items() if each not in _OWN}
        own: dict[str, Any] = {each: given.get(each) for each in _OWN}
        batch_size = own.pop("batch_size")
        policy = None
        if own["batch_sampler"] is None:
            policy = BatchPolicy.choose(global_size=global_batch_size, per_worker=batch_size, micro=micro_batch_size)
        else:
            sizes = {
                "batch_size": batch_size,
                "global_batch_size": global_batch_size,
                "micro_batch_size": micro_batch_size,
            }
            _refuse_sizes([each for each, size in sizes.items() if size is not None], name=name)
        return cls(
            policy=policy,
            sampler=own["sampler"],
            batch_sampler=own["batch_sampler"],
            batches_per_step=batches_per_step,
            shuffle=own["shuffle"] is not False,
            seed=seed,
            drop_last=bool(own["drop_last"]),
            max_steps=max_steps,
            collate_fn=own["collate_fn"],
            prefetcher=prefetcher,
            loading={**loading, "num_workers": loading.get("num_workers") or 0},
        )

    @property
    def draws_order(self) -> bool:
        """Whether a sampler of the script gives the order."""
        return self.sampler is not None or self.batch_sampler is not None

    def backward_passes(self, rank: int, size: int) -> int | None:
        """Return how many micro-batches a worker has in a complete step; None if each step is one."""
        if self.policy is None:
            return max(1, shares(self.batches_per_step, size)[rank]) if self.batches_per_step is not None else None
        if self.policy.micro is None:
            return None
        share, largest = (self.policy.share(each, size) for each in (rank, 0))
        return max(1, len(micro_batch_sizes(share, self.policy.micro, largest=largest)))

    @property
    def may_pass_unevenly(self) -> bool:
        """Whether workers may make unlike numbers of passes in a step."""
        return self.batches_per_step is not None or (self.policy is not None and self.policy.micro == 1)

    def validate(self, dataset: Any, *, name: str) -> None:
        """Raise a BatchError if they, or the data set, cannot be used."""
        for problem in self._problems(dataset):
            raise BatchError(f"batches({name!r}): {problem}")

    def _problems(self, dataset: Any) -> Iterator[str]:
        for option, value in (("max_steps", self.max_steps), ("batches_per_step", self.batches_per_step)):
            if value is not None and value < 1:
                yield f"{option}: {value} is below 1"
        if self.sampler is not None and self.batch_sampler is not None:
            yield "give either a sampler or a batch_sampler"
        if self.batches_per_step is not None and self.batch_sampler is None:
            yield "batches_per_step: there is no batch_sampler; without one it is global_batch_size, in samples"
        if not self.loading.get("in_order", True):
            yield "in_order: with False nobody knows which batches have come when a resize comes: leave it out"
        yield from _problems_of_data(dataset, has_sampler=self.draws_order)


def moving(move: Callable[[Any], Any] | None, prefetcher: Prefetcher | None) -> Prefetcher | None:
    """Return a prefetcher that moves each batch first; `prefetcher` may be the script's."""
    if move is None:
        return prefetcher
    return lambda batches: (prefetcher or iter)(map(move, batches))


def _refuse_sizes(given: Sequence[str], *, name: str) -> None:
    """Refuse sizes in samples beside a batch sampler. Raises BatchError."""
    job = [each for each in (ENV_BATCH_GLOBAL, ENV_BATCH_PER_WORKER) if os.environ.get(each)]
    if given:
        raise BatchError(f"batches({name!r}): a batch_sampler says what is in a batch: leave out {', '.join(given)}")
    if job:
        raise BatchError(
            f"batches({name!r}): the job sets the size of a batch ({job[0]}), and a batch_sampler says what is in one: "
            "take `batch` out of the job, or give a sampler in place of the batch_sampler"
        )


def _problems_of_data(dataset: Any, *, has_sampler: bool) -> Iterator[str]:
    kind = type(dataset).__name__
    if is_one_shot(dataset):
        yield (
            f"a {kind} can be read only once, so training could not continue "
            "after a resize: give a data set whose __iter__ begins anew (a torch IterableDataset), or a list"
        )
    elif not is_iterable(dataset):
        if not hasattr(dataset, "__len__"):
            yield f"a {kind} has __getitem__ but no __len__"
    elif has_sampler:
        yield f"a {kind} has no index, so no sampler can choose from it: give a map-style data set, or no sampler"
    problem = problem_of(dataset)
    if problem is not None:
        yield problem


def plan_pass(
    cursor: Cursor, options: PassOptions, *, epoch: int, path: tuple[int, ...], name: str, rank: int, size: int
) -> tuple[Plan, SampleOrder | DrawnOrder]:
    """Return what is left of a pass over a map-style data set for one worker of a world, and its order.

    A sampler is drawn now, and gives the cursor its length.

    Args:
        cursor: of the pass; `length` is that of the data set.
        options: how it is divided.
        epoch: the present epoch.
        path: sets the order of this pass apart from that of others in the epoch.
        name: name of the pass, for messages.
        rank: of the worker.
        size: of the world.

    Raises:
        BatchError: the sampler cannot be used.
    """
    sampler = options.sampler if options.sampler is not None else options.batch_sampler
    seed = derived_seed(options.seed, path)
    left = options.max_steps - cursor.steps if options.max_steps is not None else None
    if sampler is None:
        return plan_samples(cursor, options, rank=rank, size=size), SampleOrder(
            cursor.length or 0, seed=seed, epoch=epoch, shuffle=options.shuffle
        )
    per_step = options.policy.total(size) if options.policy is not None else options.batches_per_step or size
    more = left * per_step if left is not None else None
    need = Need(position=cursor.position, more=more, samples=cursor.order_count) if more is not None else None
    drawn = draw if options.policy is not None else draw_batches
    order = drawn(sampler, seed=derived_seed(seed, [epoch]), epoch=epoch, need=need, name=name)
    cursor.length = order.count
    if options.policy is not None:
        return plan_samples(cursor, options, rank=rank, size=size), order
    assert order.ends is not None
    return BatchPlan(
        ends=order.ends,
        position=cursor.position,
        rank=rank,
        size=size,
        per_step=options.batches_per_step,
        drop_last=options.drop_last,
        max_steps=left,
    ), order


def plan_samples(cursor: Cursor, options: PassOptions, *, rank: int, size: int) -> EpochPlan:
    """Return what is left of a pass for one worker of a world, if a step is a number of samples."""
    assert options.policy is not None
    return EpochPlan(
        length=cursor.length or 0,
        position=cursor.position,
        policy=options.policy,
        rank=rank,
        size=size,
        drop_last=options.drop_last,
        max_steps=options.max_steps - cursor.steps if options.max_steps is not None else None,
    )
