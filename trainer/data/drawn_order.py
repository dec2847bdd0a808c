"""The order of an epoch that a sampler of the script gives, drawn whole and alike on every worker.

A sampler is not divided: each worker draws all of its order, and the plan takes this worker's part by position, as with
the order of this package. So what has to survive a resize is one number here too, as long as the sampler gives the same
order again. To that end each generator that it can draw from is seeded by the script's seed, the epoch and the pass
while it is iterated, and set back afterwards. Whether it did give the same order is looked at (`order_check`).
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from operator import index
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import Sampler

from hvd_elastic.trainer.data.batch_policy import BatchError
from hvd_elastic.trainer.data.randomness import generators_kept, seed_generators
from hvd_elastic.trainer.data.sampler import Positions

SAMPLER_WAY_OUT: Final = (
    "every worker draws the whole order and takes its part of it. Let it follow from the same data everywhere, and "
    "from a global generator of torch, numpy or Python, from one that is an attribute of the sampler (all are seeded "
    "for each epoch), or from set_epoch(epoch)"
)

_NESTED: Final = ("sampler", "batch_sampler")
"""Attributes under which torch's samplers keep the one that they draw from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnOrder:
    """Sample indices, in the order in which a sampler gave them."""

    indices: Positions
    ends: Positions | None = None
    """Of a batch sampler: how many indices there are up to the end of each batch. None: of a sampler."""

    def at(self, positions: Positions) -> Positions:
        """Return the indices of the samples at these positions of the order."""
        return self.indices[positions]

    @property
    def count(self) -> int:
        return len(self.indices)

    def digest(self, count: int) -> int:
        """Return a number above 0 that tells the first `count` indices, and their batches, from others."""
        found = blake2b(self.indices[:count].astype("<i8").tobytes(), digest_size=7)
        if self.ends is not None:
            found.update(self.ends[self.ends <= count].astype("<i8").tobytes())
        return int.from_bytes(found.digest(), "little") or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How much is drawn of a sampler that has no end. One that has a length is always drawn whole."""

    position: int
    """Samples that were taken already."""
    more: int
    """Indices that are needed after these; of a batch sampler, batches."""
    samples: int = 0
    """Indices that are needed at least, so that the order can be compared with that of the epoch's beginning."""


def draw(sampler: Any, *, seed: int, epoch: int, need: Need | None, name: str) -> DrawnOrder:
    """Draw the order that a sampler of indices gives.

    Args:
        sampler: torch's, or anything that yields indices and can be iterated again.
        seed: of the order, the same on every worker.
        epoch: given to its `set_epoch`, if it has one.
        need: how much of an endless one is drawn; None: it must have an end.
        name: name of the pass, for messages.

    Raises:
        BatchError: it cannot be used.
    """
    endless = _validate(sampler, need, name=name, argument="sampler")
    most = max(need.position + need.more, need.samples) if endless and need is not None else None
    with _seeded(sampler, seed=seed, epoch=epoch):
        return DrawnOrder(indices=_as_array(islice(sampler, most), name=name, sampler=sampler))


def draw_batches(sampler: Any, *, seed: int, epoch: int, need: Need | None, name: str) -> DrawnOrder:
    """Draw the batches that a batch sampler gives; as `draw`."""
    endless = _validate(sampler, need, name=name, argument="batch_sampler")
    lengths: list[int] = []

    def batches() -> Iterator[list[Any]]:
        drawn = more = 0
        for each in sampler:
            if endless and need is not None and drawn >= max(need.position, need.samples) and more >= need.more:
                return
            batch = _batch(each, name=name, sampler=sampler)
            more += drawn >= need.position if need is not None else 0
            drawn += len(batch)
            lengths.append(len(batch))
            yield batch

    with _seeded(sampler, seed=seed, epoch=epoch):
        found = _as_array(chain.from_iterable(batches()), name=name, sampler=sampler)
    return DrawnOrder(indices=found, ends=np.cumsum(np.array(lengths, dtype=np.int64), dtype=np.int64))


def _validate(sampler: Any, need: Need | None, *, name: str, argument: str) -> bool:
    """Whether a sampler may have no end. Raises BatchError."""
    kind = type(sampler).__name__
    for each in _with_nested(sampler):
        if getattr(each, "num_replicas", 1) != 1:
            raise BatchError(
                f"batches({name!r}): {argument}: a {type(each).__name__} takes the part of one of "
                f"{each.num_replicas} workers, and batches() divides what it gets among the workers again, so most "
                "samples would be left out: leave it out, or build it with num_replicas=1, rank=0"
            )
    if isinstance(sampler, Iterator):
        raise BatchError(
            f"batches({name!r}): {argument}: a {kind} can be iterated only once, so training could not continue after "
            "a resize: give a sampler whose __iter__ begins anew, or a list"
        )
    endless = not _has_length(sampler)
    if endless and need is None:
        raise BatchError(
            f"batches({name!r}): {argument}: a {kind} has no length, and all that it gives is drawn at the beginning: "
            "give max_steps too, or a sampler that has __len__"
        )
    return endless


def _has_length(sampler: Any) -> bool:
    try:
        len(sampler)
    except (TypeError, NotImplementedError):
        return False
    return True


def _batch(batch: Any, *, name: str, sampler: object) -> list[Any]:
    indices = list(batch) if isinstance(batch, Iterable) and not isinstance(batch, str | bytes) else []
    if not indices:
        raise BatchError(
            f"batches({name!r}): batch_sampler: a {type(sampler).__name__} gave {batch!r} for a batch, which is not a "
            "list of indices: a sampler of single indices is given as sampler=..."
        )
    return indices


def _as_array(indices: Iterable[Any], *, name: str, sampler: object) -> Positions:
    try:
        return np.fromiter(map(index, indices), dtype=np.int64)
    except TypeError as error:
        raise BatchError(
            f"batches({name!r}): a {type(sampler).__name__} gave something other than whole numbers: {error}"
        ) from error


@contextmanager
def _seeded(sampler: Any, *, seed: int, epoch: int) -> Iterator[None]:
    """Within it the global generators, and those that the sampler holds, are seeded; after it they are as before."""
    with generators_kept(), ExitStack() as stack:
        seed_generators(seed)
        for each in _with_nested(sampler):
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)
            for value in vars(each).values() if hasattr(each, "__dict__") else ():
                restore = _reseed(value, seed)
                if restore is not None:
                    stack.callback(restore)
        yield


def _with_nested(sampler: Any) -> Iterator[Any]:
    found, to_look_at = set[int](), [sampler]
    while to_look_at:
        each = to_look_at.pop()
        if id(each) in found:
            continue
        found.add(id(each))
        yield each
        for attribute, value in getattr(each, "__dict__", {}).items():
            if attribute in _NESTED or isinstance(value, Sampler):
                to_look_at.append(value)


def _reseed(value: object, seed: int) -> Callable[[], object] | None:
    """Seed a generator. Returns what sets it back, or None if the value is not one."""
    if isinstance(value, torch.Generator):
        tensor = value.get_state()
        value.manual_seed(seed)
        return lambda: value.set_state(tensor)
    if isinstance(value, random.Random):
        state = value.getstate()
        value.seed(seed)
        return lambda: value.setstate(state)
    if isinstance(value, np.random.RandomState):
        words = value.get_state(legacy=False)
        value.seed(seed & 0xFFFFFFFF)
        return lambda: value.set_state(words)
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        before, bits.state = bits.state, type(bits)(seed).state
        return lambda: setattr(bits, "state", before)
    return None
