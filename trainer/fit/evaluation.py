"""Evaluation on all workers together: every sample exactly once, at any world size."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld

Measure = Callable[[torch.nn.Module, Any], Mapping[str, torch.Tensor]]
"""Takes the model and a batch on the device; returns means over the batch, by name."""


def evaluate(
    model: torch.nn.Module,
    measure: Measure,
    dataset: Any,
    *,
    batch_size: int,
    to_device: Callable[[Any], Any],
    world: TrainingWorld = WORLD,
    **options: Any,
) -> dict[str, float]:
    """Return the mean over `dataset` of each value that `measure` returns; empty if the data set is empty.

    A collective operation. Every worker takes every size-th sample, so shares differ by at most one sample. Each batch
    is weighted with its number of samples, so the mean is the same as that of a single worker.

    Args:
        model: set to eval mode and then back to the mode it was in.
        measure: returns means over a batch, by name. A worker that has no sample skips the call.
        dataset: a map-style data set.
        batch_size: samples in one batch.
        to_device: moves a batch to the device.
        world: of the workers.
        options: for torch's DataLoader.
    """
    share = Subset(dataset, range(world.rank(), len(dataset), world.size()))
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            sums = _sums(DataLoader(share, batch_size=batch_size, **options), model, measure, to_device)
    finally:
        model.train(was_training)
    return _means(sums, world)


def _sums(loader: Any, model: torch.nn.Module, measure: Measure, to_device: Callable[[Any], Any]) -> dict[str, float]:
    totals: dict[str, torch.Tensor] = {}
    count = 0
    for batch in loader:
        length = samples_in(batch)
        count += length
        for name, value in measure(model, to_device(batch)).items():
            totals[name] = totals.get(name, 0.0) + value.detach().double() * length
    return {"": float(count), **{name: float(value) for name, value in totals.items()}}


def _means(sums: Mapping[str, float], world: TrainingWorld) -> dict[str, float]:
    """Average over all workers. A worker without samples does not know the names, so all sums are gathered first."""
    everyone = world.allgather_object(dict(sums), name="hvd_elastic.evaluation") if world.size() > 1 else [dict(sums)]
    count = sum(each.pop("") for each in everyone)
    names = dict.fromkeys(name for each in everyone for name in each)
    return {name: sum(each.get(name, 0.0) for each in everyone) / count for name in names} if count else {}


def samples_in(batch: Any) -> int:
    """Return the number of samples in a collated batch: the length of its first tensor."""
    return len(next(leaves(batch)))


def leaves(batch: Any) -> Iterator[Any]:
    """Yield what a collated batch is made of: its tensors, in most cases."""
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from leaves(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from leaves(value)
    else:
        yield batch
