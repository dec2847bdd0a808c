"""What a commit must know of random numbers, so that a resumed run draws those of the undisturbed one.

The state of a generator says what a process has done so far, and after a resize the processes do other things. So
within a pass over data (`State.batches`) random numbers do not follow from history but from the place in the data:

* Before a sample is loaded, the generators are seeded by the sample's index. An augmentation in the data set depends
  neither on the number of loader processes nor on that of the workers.
* Before a batch is yielded, they are seeded by the position of its first sample. Dropout is that of the undisturbed run
  as long as the number of workers is the same; with another number a batch has other samples.

Outside of passes the generators run on, and their state is part of the commit. A worker that joins takes that of the
root and its own rank.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import TensorDataset

from hvd_elastic.trainer.data.sampler import MicroBatch

_MASK: Final = (1 << 64) - 1
_SAMPLE, _STEP, _END = range(3)

_DRAW_NOTHING: Final = frozenset({range, list, tuple, torch.Tensor, np.ndarray, TensorDataset})
"""Types of data sets that hold their samples as they are: seeding would cost more than their samples."""


class Randomness:
    """The generators of a process: torch's (CPU, and GPU if CUDA is in use), numpy's and Python's global ones."""

    def __init__(self, *, enabled: bool = True) -> None:
        """`enabled`: False leaves the generators alone."""
        self._enabled = enabled
        self._seed = torch.initial_seed()

    def state(self) -> dict[str, Any]:
        """Return the seed of the job and the states of the generators, in a form that can be stored. Empty if off."""
        if not self._enabled:
            return {}
        _, keys, *rest = np.random.get_state(legacy=True)
        version, words, gauss = random.getstate()
        state = {
            "seed": self._seed,
            "torch": torch.get_rng_state(),
            "numpy": [torch.from_numpy(np.asarray(keys, dtype=np.int64)), *(float(each) for each in rest)],
            "python": [version, torch.from_numpy(np.array(words, dtype=np.int64)), gauss],
        }
        return {**state, "cuda": torch.cuda.get_rng_state()} if _uses_cuda() else state

    def load(self, state: Mapping[str, Any]) -> None:
        """Set the generators back. An empty state, as of an older checkpoint, changes nothing."""
        if not self._enabled or not state:
            return
        self._seed = state["seed"]
        torch.set_rng_state(state["torch"].cpu())
        keys, position, has_gauss, gauss = state["numpy"]
        np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), int(position), int(has_gauss), gauss))
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words.tolist()), gauss))
        if "cuda" in state and _uses_cuda():
            torch.cuda.set_rng_state(state["cuda"].cpu())

    def join(self, state: Mapping[str, Any], rank: int, *, is_fresh: bool) -> None:
        """Take the job's seed from another worker, and generators of this rank's own that follow from that worker's.

        `is_fresh`: the job begins, and the generators are as the script has seeded them.
        """
        if not self._enabled or not state:
            return
        self._seed = state["seed"]
        if not is_fresh:
            digest = hashlib.sha256(state["torch"].cpu().numpy().tobytes() + rank.to_bytes(8, "little")).digest()
            seed_generators(int.from_bytes(digest[:8], "little"))

    def of_pass(self, name: str, epoch: int, path: Iterable[int] = ()) -> "PassSeeds | None":
        """Return the seeds of a pass over data; None if disabled. `path` tells passes of one name apart."""
        if not self._enabled:
            return None
        digest = hashlib.sha256(f"{self._seed}/{epoch}/{name}/{(*path,)}".encode()).digest()
        return PassSeeds(key=int.from_bytes(digest[:8], "little"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeeds:
    """The seeds of one pass over data, for every sample and every batch."""

    key: int
    """Hash of the job's seed, the epoch and the name of the pass."""

    def of_samples(
        self, dataset: object, batches: Iterator[list[int]], firsts: Iterator[int] | None = None
    ) -> Iterator[list[int]]:
        """Yield lists of sample indices as they are, except that taking an index out of one seeds the generators.

        So the data set stays the script's own, and its loader processes need no function of ours.

        Args:
            dataset: what they are indices of.
            batches: the lists.
            firsts: of each list, the position of its first sample in the order: then the generators are seeded by the
                position, because the order may have an index several times. None: by the index.
        """
        if type(dataset) in _DRAW_NOTHING:
            return batches
        if firsts is None:
            return (SeededIndices(indices, self) for indices in batches)
        return (SeededIndices(indices, self, first) for indices, first in zip(batches, firsts, strict=False))

    def of_stream(self, samples: Iterable[Any], position: int) -> Iterator[Any]:
        """Yield the samples of a stream that begins at `position`, each drawn with generators of its own."""
        iterator = iter(samples)
        while True:
            self.seed_sample(position)
            try:
                sample = next(iterator)
            except StopIteration:
                return
            yield sample
            position += 1

    def of_steps(self, pairs: Iterable[tuple[Any, MicroBatch]], rank: int) -> Iterator[tuple[Any, MicroBatch]]:
        """Yield batches. The generators are seeded before each, and after the last."""
        for batch, micro_batch in pairs:
            seed_generators(_mixed(self.key, micro_batch.first, _STEP))
            yield batch, micro_batch
        seed_generators(_mixed(self.key, rank, _END))

    def seed_sample(self, index: int) -> None:
        """Seed the generators for one sample: its index, or its position in a stream or in a sampler's order."""
        seed_generators(_mixed(self.key, index, _SAMPLE))


class SeededIndices(list[int]):
    """Sample indices. Iterating over them seeds the generators for each."""

    def __init__(self, indices: Iterable[int] = (), seeds: PassSeeds | None = None, first: int | None = None) -> None:
        """`first`: the position of the first one, by which the generators are seeded; None: by each index."""
        super().__init__(indices)
        self.seeds, self.first = seeds, first

    def __iter__(self) -> Iterator[int]:
        for place, index in enumerate(super().__iter__(), start=self.first or 0):
            if self.seeds is not None:
                self.seeds.seed_sample(index if self.first is None else place)
            yield index

    def __reduce__(self) -> tuple[Any, ...]:
        return SeededIndices, (list(list.__iter__(self)), self.seeds, self.first)


@contextmanager
def generators_kept() -> Iterator[None]:
    """After it, every global generator of this process is as it was before."""
    cuda = torch.cuda.get_rng_state() if _uses_cuda() else None
    own, numpys, pythons = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(own)
        np.random.set_state(numpys)
        random.setstate(pythons)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)


def seed_generators(seed: int) -> None:
    """Seed every global generator of this process. Not `torch.manual_seed`, which takes ten times as long."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if _uses_cuda():
        torch.cuda.manual_seed(seed)


def _uses_cuda() -> bool:
    """Whether this process has used a GPU. Before, torch would only remember each seed until it does."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _mixed(key: int, value: int, kind: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014): 64 bits from a key and a value."""
    z = (key + (3 * value + kind + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
