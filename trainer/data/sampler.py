"""Which samples a worker takes: a pure function of length, seed, epoch, position and world.

An epoch is one fixed order of all samples. A step takes the next `total` samples and divides them over the present
workers. So only one number, the position, has to survive a resize or a restart from a durable checkpoint, and every
sample is taken exactly once, whatever the sequence of worlds.

The order is never a Python list. Up to `SORTED_LIMIT` samples it is a sort by hash. Above, it is a Feistel network
(Luby and Rackoff 1988) with cycle walking, which computes the sample at a position on demand and needs no memory. Both
are defined here and do not depend on the version of numpy: a checkpoint taken in mid-epoch relies on that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from hvd_elastic.trainer.data.batch_policy import BatchPolicy, micro_batch_sizes, shares, weight

Positions = npt.NDArray[np.int64]
_UInt64s = npt.NDArray[np.uint64]

SORTED_LIMIT: Final = 1 << 20
"""Sorting this many hashes takes about 0.1 s. Below, a Feistel network has few bits and would shuffle badly."""

ROUNDS: Final = 6
_CHUNK: Final = 1 << 14
"""Samples of this worker that are looked up in one call, to spread numpy's cost per call."""


class Order(Protocol):
    """The order of an epoch's samples."""

    def at(self, positions: Positions) -> Positions:
        """Return the indices of the samples at these positions of the order."""


class SampleOrder:
    """The order of an epoch's samples, computed."""

    def __init__(self, length: int, *, seed: int = 0, epoch: int = 0, shuffle: bool = True) -> None:
        self.length = length
        self._sorted: Positions | None = None
        self._keys: _UInt64s | None = None
        if shuffle and length > 1:
            keys = keyed_hash(np.arange(ROUNDS, dtype=np.uint64), _key(seed, epoch))
            if length <= SORTED_LIMIT:
                hashed = keyed_hash(np.arange(length, dtype=np.uint64), int(keys[0]))
                self._sorted = np.argsort(hashed, kind="stable").astype(np.int64)
            else:
                self._keys = keys

    def at(self, positions: Positions) -> Positions:
        """Return the indices of the samples at these positions of the order."""
        if self._sorted is not None:
            return self._sorted[positions]
        if self._keys is None:
            return positions
        return self._walk(positions.astype(np.uint64)).astype(np.int64)

    def _walk(self, words: _UInt64s) -> _UInt64s:
        """Permute the next power of two, and again what falls outside the range, so that the range is permuted."""
        bits = (self.length - 1).bit_length()
        words = self._permute(words, bits)
        while (outside := np.flatnonzero(words >= self.length)).size:
            words[outside] = self._permute(words[outside], bits)
        return words

    def _permute(self, words: _UInt64s, bits: int) -> _UInt64s:
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
class MicroBatch:
    """One micro-batch of one worker: its place in the epoch, without the data."""

    count: int
    """Number of its samples."""
    weight: float
    """Factor on its mean loss; 0 for padding."""
    last: bool
    """Whether the optimizer steps after it."""
    position: int
    """The epoch's position after its step."""
    padding: int
    """Samples that are taken twice in this step, over all workers."""
    first: int = 0
    """The epoch's position before its first sample."""
    digest: int = 0
    """Sum of its samples' hashes (`sample_certificate`); 0 for padding, and where nothing is certified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """The remaining steps of an epoch, as one worker of a world sees them."""

    length: int
    """Samples of the epoch."""
    position: int
    """Samples of the epoch that were already taken."""
    policy: BatchPolicy
    rank: int
    size: int
    drop_last: bool = False
    """Leave out the last step if it is incomplete."""
    max_steps: int | None = None
    """Most steps that remain; None: until the data is exhausted."""

    def micro_batches(self) -> Iterator[MicroBatch]:
        """Yield every micro-batch of this worker, in order."""
        for start, total in self._steps():
            yield from self.step(start, total)

    def indices(self, order: Order) -> Iterator[list[int]]:
        """Yield the sample indices of every micro-batch, in the order of `micro_batches()`."""
        for first, block in self._blocks():
            samples = order.at(block).tolist()
            start, taken = first, 0
            while taken < len(samples):
                total = min(self.total, self._stop - start)
                for batch in self.step(start, total):
                    yield samples[taken : taken + batch.count]
                    taken += batch.count
                start += total

    @property
    def total(self) -> int:
        """Samples of a complete step, over all workers."""
        return self.policy.total(self.size)

    @property
    def end(self) -> int:
        """The position at which the pass ends, as long as the number of workers stays."""
        return self.position + self._whole * self.total if self.drop_last else self._stop

    @property
    def _whole(self) -> int:
        return max(0, self._stop - self.position) // self.total

    @property
    def _stop(self) -> int:
        """The position at which the last step ends, complete or not."""
        if self.max_steps is None:
            return self.length
        return min(self.length, self.position + self.max_steps * self.total)

    def _steps(self) -> Iterator[tuple[int, int]]:
        for step in range(self._whole):
            yield self.position + step * self.total, self.total
        yield from self._steps_after_whole()

    def samples_before(self, total: int) -> int:
        """Return how many samples of a step of `total` come before this worker's."""
        return _own_slice(total, self.size, self.rank)[1]

    def step(self, start: int, total: int) -> tuple[MicroBatch, ...]:
        """Return this worker's micro-batches of the step that takes `total` samples from position `start` on."""
        batches = _step_micro_batches(total, self.size, self.rank, self.policy.micro)
        return tuple(replace(batch, position=start + total, first=start + batch.first) for batch in batches)

    def _blocks(self) -> Iterator[tuple[int, Positions]]:
        """Yield the start of each run of steps, and the positions that this worker takes in it."""
        own, before = _own_slice(self.total, self.size, self.rank)
        per_block = max(1, _CHUNK // own)
        steps = np.arange(per_block, dtype=np.int64)[:, None] * self.total + before + np.arange(own, dtype=np.int64)
        for first in range(0, self._whole, per_block):
            start = self.position + first * self.total
            yield start, (start + steps[: self._whole - first]).ravel()
        for start, total in self._steps_after_whole():
            own, before = _own_slice(total, self.size, self.rank)
            yield start, start + before + np.arange(own, dtype=np.int64)

    def _steps_after_whole(self) -> Iterator[tuple[int, int]]:
        start = self.position + self._whole * self.total
        if start < self._stop and not self.drop_last:
            yield start, self._stop - start


@lru_cache(maxsize=16)
def _step_micro_batches(total: int, size: int, rank: int, micro: int | None) -> tuple[MicroBatch, ...]:
    """A worker's micro-batches of a step that begins at 0, with position 0: complete steps differ only in where."""
    all_shares = shares(total, size)
    padding = all_shares.count(0)
    counts = micro_batch_sizes(all_shares[rank], micro, largest=all_shares[0])
    if not counts:  # its peers wait for its gradients, so it repeats a sample with weight 0
        return (MicroBatch(count=1, weight=0.0, last=True, position=0, padding=padding),)
    before = sum(all_shares[:rank])
    return tuple(
        MicroBatch(
            count=count,
            weight=weight(count, total, size),
            last=index == len(counts) - 1,
            position=0,
            padding=padding,
            first=before + sum(counts[:index]),
        )
        for index, count in enumerate(counts)
    )


def derived_seed(seed: int, path: Iterable[int]) -> int:
    """Return another seed for each sequence of numbers, and the same seed for the empty one."""
    for number in path:
        seed = _key(seed, number)
    return seed


def _own_slice(total: int, size: int, rank: int) -> tuple[int, int]:
    """Return how many of a step's samples a worker takes, and how many come before them.

    A worker without a share takes one repeated sample.
    """
    all_shares = shares(total, size)
    return (all_shares[rank], sum(all_shares[:rank])) if all_shares[rank] else (1, 0)


def _key(seed: int, epoch: int) -> int:
    words = np.array([seed & (2**64 - 1)], dtype=np.uint64)
    return int(keyed_hash(words, epoch & (2**64 - 1))[0])


def keyed_hash(words: _UInt64s, key: int) -> _UInt64s:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), keyed."""
    with np.errstate(over="ignore"):
        z = (words + np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def _mix(words: _UInt64s, key: np.uint64) -> _UInt64s:
    """The round function: two multiplications, of which the well-mixed upper half is used."""
    z = (words + key) * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(29)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(z >> np.uint64(32), dtype=np.uint64)
