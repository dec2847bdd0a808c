"""A worker's micro-batches of an epoch, loaded, each with its part of the plan."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from hvd_elastic.trainer.data.sampler import EpochPlan, Part, SampleOrder

logger = logging.getLogger(__name__)

Collate = Callable[[list[Any]], Any]

_OF_PROCESSES: Final = (
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "multiprocessing_context",
    "worker_init_fn",
    "timeout",
)
"""DataLoader's options that mean nothing without processes."""

_LOSSES: Final = 3
"""A script with a loader of its own goes on with processes: after so many deaths its error is its error."""

_TOLD_SECONDS: Final = 1.0
"""So soon after a connection to a loader process broke, torch has told of its death, if that was why."""

_lost: list[str] = []
"""What the loader processes of this one died of."""


def load(
    plan: EpochPlan, dataset: Any, order: SampleOrder | None, collate: Collate | None, **options: Any
) -> Iterator[tuple[Any, Part]]:
    """Load what is left of an epoch.

    Args:
        plan: the steps.
        dataset: map-style (`__getitem__`, `__len__`) or iterable. An iterable one must give the same samples in the
        same order on
            every worker; one that has `iterate_from(position)` is not read from its beginning after a resize.
        order: of a map-style data set; None for an iterable one.
        collate: samples to a batch; torch's default where None.
        options: for DataLoader: `num_workers`, `pin_memory`, `prefetch_factor` ...
    """
    if order is None:
        stream = _Stream(plan, dataset, collate or default_collate)
        yield from DataLoader(stream, batch_size=None, collate_fn=_as_it_is, **(_alone(options) if _lost else options))
    else:
        yield from zip(_batches(plan, order, dataset, collate, options), plan.parts(), strict=True)


def _batches(
    plan: EpochPlan, order: SampleOrder, dataset: Any, collate: Collate | None, options: dict[str, Any]
) -> Iterator[Any]:
    given = 0
    if options.get("num_workers") and not _lost:
        loader = DataLoader(dataset, batch_sampler=_Batches(plan, order), collate_fn=collate, **options)
        try:
            for batch in loader:
                given += 1
                yield batch
            return
        except (RuntimeError, ConnectionError, EOFError) as error:
            if not is_lost_process(error):
                raise
    rest = _Batches(plan, order, given)
    yield from DataLoader(dataset, batch_sampler=rest, collate_fn=collate, **_alone(options))


def _alone(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OF_PROCESSES}


def is_lost_process(error: Exception) -> bool:
    """Whether a loader process was killed: a full /dev/shm (SIGBUS), or too little memory (SIGKILL).

    torch says so wherever the training thread happens to be, by a signal handler: a RuntimeError. A ConnectionError or
    EOFError may come a moment before. From then on this process loads what it needs itself: slower, and without shared
    memory.
    """
    text = str(error if isinstance(error, RuntimeError) else _told_of_a_death())
    if not text.startswith("DataLoader worker (pid"):
        return False
    if not _lost:
        logger.warning("%s From now on data is loaded in the training process.", text)
    _lost.append(text)
    return len(_lost) <= _LOSSES


def _told_of_a_death() -> RuntimeError | None:
    """A batch's memory is fetched from the process that made it: where that has just died, the fetch fails first."""
    try:
        time.sleep(_TOLD_SECONDS)
    except RuntimeError as error:  # of torch's handler
        return error
    return None


def is_iterable(dataset: object) -> bool:
    """Whether a data set can only be iterated."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


class _Batches:
    """A batch sampler."""

    def __init__(self, plan: EpochPlan, order: SampleOrder, given: int = 0) -> None:
        """`given`: how many batches to pass over."""
        self._plan, self._order, self._given = plan, order, given

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self._plan.indices(self._order), self._given, None)


class _Stream(IterableDataset[tuple[Any, Part]]):
    """A worker's share of a stream. Every loader process reads the stream and collates every n-th step's share."""

    def __init__(self, plan: EpochPlan, dataset: Any, collate: Collate) -> None:
        self._plan, self._dataset, self._collate = plan, dataset, collate

    def __iter__(self) -> Iterator[tuple[Any, Part]]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for index, (samples, part) in enumerate(stream_parts(self._plan, self._from_position())):
            if index % workers == worker:
                yield self._collate(samples), part

    def _from_position(self) -> Iterator[Any]:
        start = self._plan.position
        iterate_from = getattr(self._dataset, "iterate_from", None)
        return iter(iterate_from(start)) if iterate_from is not None else islice(iter(self._dataset), start, None)


def stream_parts(plan: EpochPlan, stream: Iterable[Any]) -> Iterator[tuple[list[Any], Part]]:
    """The samples of every micro-batch of this worker, from a stream that stands at the plan's position."""
    samples = iter(stream)
    total, position = plan.total, plan.position
    while step := list(islice(samples, total)):
        if len(step) < total and plan.drop_last:
            return
        taken = plan.first_of(len(step))
        for part in plan.step(position, len(step)):
            yield step[taken : taken + part.count], part
            taken += part.count
        position += len(step)


def _as_it_is(value: Any) -> Any:
    return value
