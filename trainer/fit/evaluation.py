"""Evaluating on all workers at once: every sample exactly once, whatever the world size."""

from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, Subset

Measure = Callable[[torch.nn.Module, Any], Mapping[str, torch.Tensor]]
"""Model and batch to means over the batch, by name."""


def evaluate(
    model: torch.nn.Module,
    measure: Measure,
    dataset: Any,
    *,
    batch_size: int,
    place: Callable[[Any], Any],
    **options: Any,
) -> dict[str, float]:
    """Return the mean over `dataset` of each value that `measure` gives.

    A collective operation. Every worker takes every size-th sample; shares differ by one sample at most, and each batch
    weighs what it holds, so that the mean is that of one worker alone.

    Args:
        model: left in the mode (train or eval) it was in.
        measure: a worker without a sample calls it not at all.
        dataset: map-style.
        batch_size: samples at once.
        place: moves a batch to the device.
        options: for torch's DataLoader.
    """
    share = Subset(dataset, range(hvd.rank(), len(dataset), hvd.size()))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            sums = _sums(DataLoader(share, batch_size=batch_size, **options), model, measure, place)
    finally:
        model.train(was_training)
    return _means(sums)


def _sums(loader: Any, model: torch.nn.Module, measure: Measure, place: Callable[[Any], Any]) -> dict[str, float]:
    totals: dict[str, torch.Tensor] = {}
    count = 0
    for batch in loader:
        length = samples_in(batch)
        count += length
        for name, value in measure(model, place(batch)).items():
            totals[name] = totals.get(name, 0.0) + value.detach().double() * length
    return {"": float(count), **{name: float(value) for name, value in totals.items()}}


def _means(sums: Mapping[str, float]) -> dict[str, float]:
    """Workers without a sample have no names: all are collected first."""
    everyone = hvd.allgather_object(dict(sums), name="hvd_elastic.evaluation") if hvd.size() > 1 else [dict(sums)]
    count = sum(each.pop("") for each in everyone)
    names = dict.fromkeys(name for each in everyone for name in each)
    return {name: sum(each.get(name, 0.0) for each in everyone) / count for name in names} if count else {}


def samples_in(batch: Any) -> int:
    """Return how many samples a collated batch holds: the length of its first tensor."""
    return len(next(_leaves(batch)))


def _leaves(batch: Any) -> Iterator[Sized]:
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from _leaves(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _leaves(value)
    else:
        yield batch
