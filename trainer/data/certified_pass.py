"""One pass over a data set, or several that have ended: what the hashes of their samples must come to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from hvd_elastic.trainer.data.sampler import SampleOrder, derived_seed, keyed_hash

MODULUS: Final = 1 << 64
"""Of every sum."""
_CHUNK: Final = 1 << 20
"""Samples that are hashed at a time."""
KEPT_ROWS: Final = 8
"""Most rows of epochs that have ended, and most names of those that are folded."""
OTHERS: Final = "other passes"
"""The name of folded epochs that are not of one name."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHash:
    """Hashes samples of one pass: what it yields differs for each name, epoch and index."""

    name: str
    epoch: int

    def sum_of(self, indices: Iterable[int] | Indices) -> int:
        """The sum of the samples' hashes, modulo 2^64. Indices in a stream are positions."""
        words = np.asarray(indices, dtype=np.int64).view(np.uint64)
        return int(keyed_hash(words, _key(self.name, self.epoch)).sum(dtype=np.uint64))


@lru_cache(maxsize=8 * KEPT_ROWS)
def _sum_of_epoch(name: str, epoch: int, of_order: tuple[int, int, bool] | None, start: int, stop: int) -> int:
    """The sum of the samples at these positions of an epoch's order: of `(length, seed, shuffle)`, or None for theirs.

    Kept, because an epoch is examined as it ends, and once more when it is put together with others or folded.
    """
    order = None
    if of_order is not None:
        length, seed, shuffle = of_order
        order = SampleOrder(length, seed=seed, epoch=epoch, shuffle=shuffle)
    hashed, total = SampleHash(name=name, epoch=epoch), 0
    for at in range(start, stop, _CHUNK):
        positions = np.arange(at, min(stop, at + _CHUNK), dtype=np.int64)
        total += hashed.sum_of(positions if order is None else order.at(positions))
    return total % MODULUS


@lru_cache(maxsize=16)
def _key(name: str, epoch: int) -> int:
    """64 bits, so that the hashes of two epochs have nothing in common."""
    return derived_seed(1, (crc32(name.encode()), epoch))


@dataclass(slots=True, kw_only=True)
class CertifiedPass:
    """One pass of an epoch, or the same of several epochs in a row that have ended."""

    name: str
    first: int
    last: int
    """Epochs, from 0; both the same unless several are put together."""
    length: int | None
    """Samples of the data set; None: of a stream that is not exhausted."""
    seed: int
    shuffle: bool | None
    """None: a stream, whose samples are known by their positions alone."""
    position: int = 0
    """Samples that the commit covers: the first ones of the epoch's order."""
    told: int = 0
    """Samples that are in the sum."""
    known_epochs: int = field(default=0, compare=False)
    """Of the first so many of these epochs `known_sum` is what they must come to."""
    known_sum: int = field(default=0, compare=False)

    @property
    def is_whole(self) -> bool:
        return self.length is not None and self.position == self.told == self.length

    @property
    def epochs(self) -> int:
        return self.last - self.first + 1

    @property
    def kind(self) -> tuple[object, ...]:
        """The same for two epochs whose sums follow in the same way: that of all samples does from their number."""
        order = () if self.is_whole else (self.seed, self.shuffle)
        return self.name, self.length, self.position, self.told, *order

    def sum_of(self, start: int, stop: int) -> int:
        """The sum that these positions of the order have, over all epochs of this pass, if each is used once."""
        return sum(self._sum_in(epoch, start, stop) for epoch in range(self.first, self.last + 1)) % MODULUS

    def due(self) -> int:
        """What this pass must come to. Only epochs of which it is not known are looked at."""
        new = range(self.first + self.known_epochs, self.last + 1)
        return (self.known_sum + sum(self._sum_in(epoch, 0, self.told) for epoch in new)) % MODULUS

    def _sum_in(self, epoch: int, start: int, stop: int) -> int:
        if self.shuffle is None or self.length is None:
            return _sum_of_epoch(self.name, epoch, None, start, stop)
        order = (self.length, self.seed, self.shuffle)
        if start or 2 * stop < self.length:
            return _sum_of_epoch(self.name, epoch, order, start, stop)
        # All samples have one sum in any order, and to compute an order takes far longer than to hash.
        left = _sum_of_epoch(self.name, epoch, order, stop, self.length) if stop < self.length else 0
        return (_sum_of_epoch(self.name, epoch, None, 0, self.length) - left) % MODULUS


@dataclass(slots=True, kw_only=True)
class FoldedEpochs:
    """Epochs of one name that have ended, of any kinds."""

    name: str
    first: int
    last: int
    epochs: int = 0
    """Less than from `first` to `last` if some between them had no such pass."""
    samples: int = 0
    """In all of them that were told."""
    due: int = 0
    """What these must come to."""

    @property
    def is_dense(self) -> bool:
        """Whether each epoch from `first` to `last` is among them, once."""
        return self.name != OTHERS and self.epochs == self.last - self.first + 1

    def add(self, ended: CertifiedPass) -> None:
        self.first, self.last = min(self.first, ended.first), max(self.last, ended.last)
        self.epochs += ended.epochs
        self.samples += ended.told * ended.epochs
        self.due = (self.due + ended.due()) % MODULUS

    def words(self) -> str:
        epochs = "epochs" if self.is_dense else f"{self.epochs:,} of the epochs"
        return f"{self.name}, {epochs} {self.first}-{self.last}: {self.samples:,} samples once, and no other"
