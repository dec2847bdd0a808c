"""Which samples a worker takes: a pure function of length, seed, epoch, position and the world.

An epoch is one fixed order of all samples. A step takes the next `total` of them, wherever it stands, and divides
them over the workers there are. So all that has to survive a resize, or a restart from a durable checkpoint, is one
number, the position, and every sample is taken exactly once, whatever the sequence of worlds.

The order is never a list. Up to `SORTED_LIMIT` samples it is a sort by hash; above, a Feistel network (Luby and
Rackoff 1988) walked back into range: a sample's place in the order is computed when it is asked for, in no memory.
Both are defined here and do not change with a version of numpy, which a checkpoint taken in mid-epoch relies on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from hvd_elastic.trainer.data.batch_policy import BatchPolicy, parts, shares, weight

Positions = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

SORTED_LIMIT: Final = 1 << 20
"""Sorting so many hashes takes about 0.1 s. A Feistel network over few bits would shuffle badly."""

ROUNDS: Final = 6
_CHUNK: Final = 1 << 14
"""Samples of this worker looked up at once: numpy's cost per call is spread over them."""


class SampleOrder:
    """The order of an epoch's samples."""

    def __init__(self, length: int, *, seed: int = 0, epoch: int = 0, shuffle: bool = True) -> None:
        self.length = length
        self._sorted: Positions | None = None
        self._keys: _Words | None = None
        if shuffle and length > 1:
            keys = _hash(np.arange(ROUNDS, dtype=np.uint64), _key(seed, epoch))
            if length <= SORTED_LIMIT:
                hashed = _hash(np.arange(length, dtype=np.uint64), int(keys[0]))
                self._sorted = np.argsort(hashed, kind="stable").astype(np.int64)
            else:
                self._keys = keys

    def at(self, positions: Positions) -> Positions:
        """The samples at these positions of the order."""
        if self._sorted is not None:
            return self._sorted[positions]
        if self._keys is None:
            return positions
        return self._walk(positions.astype(np.uint64)).astype(np.int64)

    def _walk(self, words: _Words) -> _Words:
        """Permute the next power of two; what falls outside the range goes round again, so the range is permuted."""
        bits = (self.length - 1).bit_length()
        words = self._permute(words, bits)
        while (outside := np.flatnonzero(words >= self.length)).size:
            words[outside] = self._permute(words[outside], bits)
        return words

    def _permute(self, words: _Words, bits: int) -> _Words:
        low_bits = bits // 2
        low_mask, high_mask = np.uint64((1 << low_bits) - 1), np.uint64((1 << (bits - low_bits)) - 1)
        low, high = words & low_mask, words >> np.uint64(low_bits)
        assert self._keys is not None
        for index, key in enumerate(self._keys):
            if index % 2:
                low ^= _mix(high, key) & low_mask
            else:
                high ^= _mix(low, key) & high_mask
        return (high << np.uint64(low_bits)) | low


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One micro-batch of one worker."""

    count: int
    """Samples in it."""
    weight: float
    """What its mean loss is multiplied with; 0 for padding."""
    last: bool
    """Whether the optimizer steps after it."""
    position: int
    """The epoch's position once its step is done."""
    padding: int
    """Samples that all workers together take twice in this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """The steps that are left of an epoch, as one worker of a world sees them."""

    length: int
    """Samples of the epoch."""
    position: int
    """Samples of the epoch that are done."""
    policy: BatchPolicy
    rank: int
    size: int
    drop_last: bool = False
    """Leave out a last step that is not whole."""

    def parts(self) -> Iterator[Part]:
        """Every micro-batch of this worker, in order."""
        for start, total in self._steps():
            yield from self.step(start, total)

    def indices(self, order: SampleOrder) -> Iterator[list[int]]:
        """The samples of every micro-batch, in the order of `parts()`."""
        for first, block in self._blocks():
            samples = order.at(block).tolist()
            start, taken = first, 0
            while taken < len(samples):
                total = min(self.total, self.length - start)
                for part in self.step(start, total):
                    yield samples[taken : taken + part.count]
                    taken += part.count
                start += total

    @property
    def total(self) -> int:
        """Samples of a whole step, over all workers."""
        return self.policy.total(self.size)

    @property
    def _whole(self) -> int:
        """Whole steps that are left."""
        return max(0, self.length - self.position) // self.total

    def _steps(self) -> Iterator[tuple[int, int]]:
        for step in range(self._whole):
            yield self.position + step * self.total, self.total
        rest = self.length - self.position - self._whole * self.total
        if rest > 0 and not self.drop_last:
            yield self.length - rest, rest

    def first_of(self, total: int) -> int:
        """How many samples of a step of `total` lie before this worker's."""
        return _slice(total, self.size, self.rank)[1]

    def step(self, start: int, total: int) -> tuple[Part, ...]:
        """Give this worker's micro-batches of the step that takes `total` samples from `start` on."""
        mine = _micro_batches(total, self.size, self.rank, self.policy.micro)
        return tuple(replace(part, position=start + total) for part in mine)

    def _blocks(self) -> Iterator[tuple[int, Positions]]:
        """Where a run of steps starts, and the positions that this worker takes of it."""
        mine, before = _slice(self.total, self.size, self.rank)
        per_block = max(1, _CHUNK // mine)
        steps = np.arange(per_block, dtype=np.int64)[:, None] * self.total + before + np.arange(mine, dtype=np.int64)
        for first in range(0, self._whole, per_block):
            start = self.position + first * self.total
            yield start, (start + steps[: self._whole - first]).ravel()
        for start, total in self._steps_after_whole():
            mine, before = _slice(total, self.size, self.rank)
            yield start, start + before + np.arange(mine, dtype=np.int64)

    def _steps_after_whole(self) -> Iterator[tuple[int, int]]:
        start = self.position + self._whole * self.total
        if start < self.length and not self.drop_last:
            yield start, self.length - start


@lru_cache(maxsize=16)
def _micro_batches(total: int, size: int, rank: int, micro: int | None) -> tuple[Part, ...]:
    """A worker's part of a step that ends at position 0; whole steps are all alike."""
    given = shares(total, size)
    padding = given.count(0)
    counts = parts(given[rank], micro)
    if not counts:  # its peers wait for its gradients: it repeats a sample, which weighs nothing
        return (Part(count=1, weight=0.0, last=True, position=0, padding=padding),)
    return tuple(
        Part(
            count=count,
            weight=weight(count, total, size),
            last=index == len(counts) - 1,
            position=0,
            padding=padding,
        )
        for index, count in enumerate(counts)
    )


def _slice(total: int, size: int, rank: int) -> tuple[int, int]:
    """How many of a step's samples a worker takes, and how many lie before them. One repeated sample where it has
    none.
    """
    given = shares(total, size)
    return (given[rank], sum(given[:rank])) if given[rank] else (1, 0)


def _key(seed: int, epoch: int) -> int:
    words = np.array([seed & (2**64 - 1)], dtype=np.uint64)
    return int(_hash(words, epoch & (2**64 - 1))[0])


def _hash(words: _Words, key: int) -> _Words:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), keyed."""
    with np.errstate(over="ignore"):
        z = (words + np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def _mix(words: _Words, key: np.uint64) -> _Words:
    """A round function: two multiplications, the well-mixed upper half."""
    z = (words + key) * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(29)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(z >> np.uint64(32), dtype=np.uint64)
