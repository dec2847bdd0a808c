"""What a DataLoader of the script says of its data, for `State.batches(loader)`.

Its data set, its sampler and its options are taken; it is not iterated itself, and neither is the state of torchdata's
StatefulDataLoader, which is a DataLoader too: that is the position of one worker in a world of one size.
"""

from collections.abc import Mapping
from typing import Any, Final

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

from hvd_elastic.trainer.data.batch_policy import BatchError

_OF_PROCESSES: Final = ("timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
"""Options that have a meaning only where there are loader processes."""


def options_of(loader: "DataLoader[Any]", *, name: str) -> dict[str, Any]:
    """Return the arguments of `State.batches` that stand for a loader, without its data set.

    Raises:
        BatchError: the loader yields its data without batches.
    """
    if loader.batch_sampler is None:
        raise BatchError(
            f"batches({name!r}): a {type(loader).__name__} with batch_size=None yields what its data set has batched "
            "itself: give batches() a data set of single samples"
        )
    processes = ("num_workers", *_OF_PROCESSES)
    options = {**_order(loader), **{each: getattr(loader, each) for each in processes if getattr(loader, each, None)}}
    if loader.collate_fn is not default_collate:
        options["collate_fn"] = loader.collate_fn
    if loader.pin_memory:
        options["pin_memory"] = True
    if not getattr(loader, "in_order", True):
        options["in_order"] = False
    return options


def merged_options(
    loader: "DataLoader[Any]", given: Mapping[str, Any], *, replaces_batches: bool, name: str
) -> dict[str, Any]:
    """Return what the script gives, and for the rest what its loader says.

    Args:
        loader: the script's.
        given: arguments of `State.batches`, None where nothing is given.
        replaces_batches: the script gives another size of a batch, by other arguments.
        name: of the pass, for messages.
    """
    says = options_of(loader, name=name)
    if replaces_batches or any(given.get(each) is not None for each in ("batch_size", "batch_sampler")):
        says = {each: value for each, value in says.items() if each not in {"batch_size", "batch_sampler"}}
    if any(given.get(each) is not None for each in ("sampler", "batch_sampler")):
        says.pop("sampler", None)
    merged = {**given, **{each: value for each, value in says.items() if given.get(each) is None}}
    if not merged.get("num_workers"):  # the script wants none, and torch refuses what is meant for them
        merged = {each: value for each, value in merged.items() if each not in _OF_PROCESSES or each in given}
    return merged


def _order(loader: "DataLoader[Any]") -> dict[str, Any]:
    if loader.batch_size is None:
        return {"batch_sampler": loader.batch_sampler}
    options: dict[str, Any] = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    sampler = loader.sampler
    if isinstance(loader.dataset, IterableDataset) or isinstance(sampler, SequentialSampler):
        return {**options, "shuffle": False}
    if _is_plain_shuffle(sampler, loader):
        return {**options, "shuffle": True}
    return {**options, "sampler": sampler}


def _is_plain_shuffle(sampler: Any, loader: "DataLoader[Any]") -> bool:
    """Whether a sampler is what `shuffle=True` makes: torch's RandomSampler, or that of torchdata."""
    if type(sampler).__name__ != RandomSampler.__name__ or getattr(sampler, "replacement", True):
        return False
    return bool(sampler.num_samples == len(loader.dataset))  # type: ignore[arg-type]
