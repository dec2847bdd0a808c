"""Loads a worker's micro-batches of an epoch with torch's DataLoader."""

import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any, Final

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.worker import WorkerInfo

from hvd_elastic.trainer.data.batch_plan import BatchPlan
from hvd_elastic.trainer.data.certified_pass import SampleHash
from hvd_elastic.trainer.data.drawn_order import DrawnOrder
from hvd_elastic.trainer.data.loaders import loader_processes
from hvd_elastic.trainer.data.loaders.library_stream import is_hugging_face_stream
from hvd_elastic.trainer.data.randomness import PassSeeds
from hvd_elastic.trainer.data.sampler import EpochPlan, MicroBatch, SampleOrder

Collate = Callable[[list[Any]], Any]

_WORKER_OPTIONS: Final = (
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "multiprocessing_context",
    "worker_init_fn",
    "timeout",
)
"""DataLoader options that have no meaning without loader processes."""


def load(
    plan: EpochPlan | BatchPlan,
    dataset: Any,
    order: SampleOrder | DrawnOrder | None,
    collate: Collate | None,
    seeds: PassSeeds | None = None,
    *,
    hashed: SampleHash | None = None,
    **options: Any,
) -> Iterator[tuple[Any, MicroBatch]]:
    """Yield the remaining batches of an epoch, each with its MicroBatch.

    Args:
        plan: the remaining steps.
        dataset: map-style (`__getitem__`, `__len__`) or iterable. An iterable one must yield the same samples in the
            same order on every worker. If it has `iterate_from(position)`, it is not read from its beginning after a
            resize.
        order: the order of a map-style data set, and a plan of its kind; None for an iterable one.
        collate: turns a list of samples into a batch; None: torch's default.
        seeds: seeds the generators for each sample; None leaves them alone.
        hashed: hashes the samples of each micro-batch; None: nothing is certified.
        options: for DataLoader: `num_workers`, `pin_memory`, `prefetch_factor` ...
    """
    loader_processes.THIS_PROCESS.install()
    if order is None:
        assert isinstance(plan, EpochPlan)
        stream = _StreamShare(plan, dataset, collate or default_collate, seeds)
        usable = _without_workers(options) if loader_processes.THIS_PROCESS.deaths else _with_start_method(options)
        for batch, micro_batch in DataLoader(stream, batch_size=None, collate_fn=_identity, **usable):
            yield batch, _with_digest(micro_batch, hashed)
        return
    taken: deque[list[int]] = deque()
    batches = _batches(plan, order, dataset, collate, options, seeds=seeds, taken=taken)
    for batch, micro_batch in zip(batches, plan.micro_batches(), strict=True):
        yield batch, _with_digest(micro_batch, hashed, taken.popleft())


def _with_digest(
    micro_batch: MicroBatch, hashed: SampleHash | None, samples: Sequence[int] | None = None
) -> MicroBatch:
    """`samples`: their indices; None: those of a stream have none, and are known by their positions."""
    if hashed is None or not micro_batch.weight:
        return micro_batch
    if samples is None:
        positions = np.arange(micro_batch.first, micro_batch.first + micro_batch.count, dtype=np.int64)
        return replace(micro_batch, digest=hashed.sum_of(positions))
    return replace(micro_batch, digest=hashed.sum_of(samples))


def _batches(
    plan: EpochPlan | BatchPlan,
    order: SampleOrder | DrawnOrder,
    dataset: Any,
    collate: Collate | None,
    options: dict[str, Any],
    *,
    seeds: PassSeeds | None,
    taken: deque[list[int]],
) -> Iterator[Any]:
    """Yield the batches. `taken` gets the samples of each, before the batch is yielded."""
    yielded = 0
    if options.get("num_workers") and not loader_processes.THIS_PROCESS.deaths:
        sampler = _BatchSampler(plan, order, dataset, seeds, taken)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, **_with_start_method(options))
        try:
            for batch in loader:
                yielded += 1
                yield batch
            return
        except (RuntimeError, ConnectionError, EOFError) as error:
            if not loader_processes.THIS_PROCESS.is_lost(error):
                raise
    taken.clear()
    rest = _BatchSampler(plan, order, dataset, seeds, taken, skip=yielded)
    yield from DataLoader(dataset, batch_sampler=rest, collate_fn=collate, **_without_workers(options))


def _without_workers(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _WORKER_OPTIONS}


def _with_start_method(options: dict[str, Any]) -> dict[str, Any]:
    """Fork loader processes, on every Python, unless the script has chosen another start method.

    From Python 3.14 on the default would be a fork server, which runs the script anew: one that trains without
    `if __name__ == "__main__"` would do so there, too.
    """
    if not options.get("num_workers") or options.get("multiprocessing_context") or sys.platform != "linux":
        return options
    default, *_ = multiprocessing.get_all_start_methods()
    if multiprocessing.get_start_method(allow_none=True) not in {None, default}:  # a lock of a library sets the default
        return options
    return {**options, "multiprocessing_context": "fork"}


def is_iterable(dataset: object) -> bool:
    """Whether a data set can only be iterated, not indexed."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def is_one_shot(dataset: object) -> bool:
    """Whether a data set is a mere iterator: a generator, a `map`, a file."""
    return isinstance(dataset, Iterator) and not isinstance(dataset, IterableDataset)


class _BatchSampler:
    """The `batch_sampler` of a DataLoader."""

    def __init__(
        self,
        plan: EpochPlan | BatchPlan,
        order: SampleOrder | DrawnOrder,
        dataset: object,
        seeds: PassSeeds | None,
        taken: deque[list[int]],
        *,
        skip: int = 0,
    ) -> None:
        """`taken` gets each list of indices; `skip`: number of batches to leave out at the beginning."""
        self._plan, self._order, self._dataset, self._seeds, self._skip = plan, order, dataset, seeds, skip
        self._taken = taken

    def _indices(self) -> Iterator[list[int]]:
        for indices in islice(self._plan.indices(self._order), self._skip, None):
            self._taken.append(indices)
            yield indices

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._indices()
        if self._seeds is None:
            return batches
        # A sampler may draw an index several times, each time for another augmentation.
        firsts = (each.first for each in self._plan.micro_batches()) if isinstance(self._order, DrawnOrder) else None
        return self._seeds.of_samples(self._dataset, batches, islice(firsts, self._skip, None) if firsts else None)


class _StreamShare(IterableDataset[tuple[Any, MicroBatch]]):
    """A worker's share of a stream. Each of n loader processes reads the whole stream and collates every n-th batch.

    So the order does not depend on the number of loader processes. A data set that takes its share of the stream by
    torch's `get_worker_info()` must not do so here: it is told that it is read by the only loader process.
    """

    def __init__(self, plan: EpochPlan, dataset: Any, collate: Collate, seeds: PassSeeds | None) -> None:
        self._plan, self._dataset, self._collate, self._seeds = plan, dataset, collate, seeds

    def __iter__(self) -> Iterator[tuple[Any, MicroBatch]]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        if info is not None:
            alone = WorkerInfo(id=0, num_workers=1, seed=info.seed, dataset=info.dataset)
            torch_worker._worker_info = None if is_hugging_face_stream(self._dataset) else alone
        for index, (samples, micro_batch) in enumerate(stream_micro_batches(self._plan, self._from_position())):
            if index % workers == worker:
                yield self._collate(samples), micro_batch

    def _from_position(self) -> Iterator[Any]:
        start = self._plan.position
        iterate_from = getattr(self._dataset, "iterate_from", None)
        if iterate_from is not None:
            return self._seeded(iterate_from(start), start)
        return islice(self._seeded(self._dataset, 0), start, None)  # a stream may draw its order as it goes

    def _seeded(self, samples: Iterable[Any], position: int) -> Iterator[Any]:
        return iter(samples) if self._seeds is None else self._seeds.of_stream(samples, position)


def stream_micro_batches(plan: EpochPlan, stream: Iterable[Any]) -> Iterator[tuple[list[Any], MicroBatch]]:
    """Yield the samples of each micro-batch of this worker, from a stream that starts at the plan's position."""
    samples = iter(stream)
    total, position = plan.total, plan.position
    steps = count() if plan.max_steps is None else range(plan.max_steps)
    for _ in steps:
        step = list(islice(samples, total))
        if not step:
            return
        if len(step) < total and plan.drop_last:
            return
        start = plan.samples_before(len(step))
        for batch in plan.step(position, len(step)):
            yield step[start : start + batch.count], batch
            start += batch.count
        position += len(step)


def _identity(value: Any) -> Any:
    return value
