"""The certificate of samples: proof, from a checkpoint alone, of which samples were used and how often.

Each worker hashes the samples that its batches hold. The sum of the hashes over all workers and steps, modulo 2^64, is
part of every commit and goes back with it. A set of samples in which each is used once has a sum that follows from the
length of the data set, so whoever has the checkpoint can compare.

It is a multiset hash, the sum of hashes: MSet-Add-Hash of Clarke, Devadas, van Dijk, Gassend and Suh, "Incremental
Multiset Hash Functions and Their Application to Memory Integrity Checking" (ASIACRYPT 2003). Sums do not depend on the
order, and those of workers add up. If the hash behaves as a random function, other samples have the same sum with
probability 2^-64; 2^-(64-v) if all counts are wrong by multiples of 2^v. That is against faults, not against forgers:
the hash has no secret key.

The sum of a step is known only once all workers have told theirs, with the agreement that follows the commit. A commit
whose agreement failed, because a worker died, lacks the last step's; then the plan of the data stands in for it: which
samples each worker took in that step, whose gradients are in the commit. How many samples are known in that way is
counted (`by_plan`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Final, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt

from hvd_elastic.trainer.data.sampler import SampleOrder, derived_seed, keyed_hash

_MODULUS: Final = 1 << 64
_CHUNK: Final = 1 << 20
"""Samples that are hashed at a time."""

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


@lru_cache(maxsize=4096)
def _sum_of_epoch(name: str, epoch: int, of_order: tuple[int, int, bool] | None, start: int, stop: int) -> int:
    """The sum of the samples at these positions of an epoch's order: of `(length, seed, shuffle)`, or None for theirs.

    Kept, because a job examines its earlier epochs at the end of each.
    """
    order = None
    if of_order is not None:
        length, seed, shuffle = of_order
        order = SampleOrder(length, seed=seed, epoch=epoch, shuffle=shuffle)
    hashed, total = SampleHash(name=name, epoch=epoch), 0
    for at in range(start, stop, _CHUNK):
        positions = np.arange(at, min(stop, at + _CHUNK), dtype=np.int64)
        total += hashed.sum_of(positions if order is None else order.at(positions))
    return total % _MODULUS


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

    @property
    def is_whole(self) -> bool:
        return self.length is not None and self.position == self.length

    def sum_of(self, start: int, stop: int) -> int:
        """The sum that these positions of the order have, over all epochs of this pass, if each is used once."""
        order = None if self.shuffle is None or self.length is None else (self.length, self.seed, self.shuffle)
        if start == 0 and stop == self.length:
            order = None  # it does not matter: all samples are among them
        epochs = range(self.first, self.last + 1)
        return sum(_sum_of_epoch(self.name, epoch, order, start, stop) for epoch in epochs) % _MODULUS

    def continues(self, other: "CertifiedPass") -> bool:
        """Whether this is the same as `other` in the next epoch."""
        same = ("name", "length", "seed", "shuffle", "position", "told")
        return self.first == other.last + 1 and all(getattr(self, each) == getattr(other, each) for each in same)


_PASS: Final = tuple(each.name for each in fields(CertifiedPass))
"""The columns of a row. New ones come last."""


@dataclass(slots=True, kw_only=True)
class Certificate:
    """What is part of a commit."""

    digest: int = 0
    """The sum over all samples that were told, modulo 2^64."""
    by_plan: int = 0
    """Of these, samples that the plan of the data stands in for."""
    passes: list[CertifiedPass] = field(default_factory=list)

    def copy(self) -> "Certificate":
        return Certificate(digest=self.digest, by_plan=self.by_plan, passes=[replace(each) for each in self.passes])

    def state_dict(self) -> dict[str, Any]:
        """As plain values, a row for each pass. It is copied at every commit: lists of numbers cost the least."""
        passes = [[getattr(each, name) for name in _PASS] for each in self.passes]
        return {"digest": self.digest, "by_plan": self.by_plan, "passes": passes}

    @classmethod
    def from_state_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a `state_dict()`. Fields that a later version added are ignored."""
        passes = [CertifiedPass(**dict(zip(_PASS, row, strict=False))) for row in values["passes"]]
        return cls(digest=values["digest"], by_plan=values["by_plan"], passes=passes)

    def find(self, name: str, epoch: int) -> CertifiedPass | None:
        """The pass that is under way."""
        return next((each for each in self.passes if each.name == name and each.first == each.last == epoch), None)

    def add(self, digest: int) -> None:
        """Add what all workers have told."""
        self.digest = (self.digest + digest) % _MODULUS

    def complete(self) -> None:
        """Let the plan of the data stand in for what a commit covers and nobody could tell."""
        for each in self.passes:
            if each.told < each.position:
                self.add(each.sum_of(each.told, each.position))
                self.by_plan += (each.position - each.told) * (each.last - each.first + 1)
                each.told = each.position

    def put_together(self, epoch: int, busy: Sequence[CertifiedPass | None] = ()) -> None:
        """Put passes of epochs before `epoch` together: a hundred epochs take no more room than one.

        `busy`: passes that still have samples to tell.
        """
        kept: list[CertifiedPass] = []
        for each in self.passes:
            before = next((one for one in kept if each.continues(one)), None)
            is_done = each.last < epoch and not any(each is one or before is one for one in busy)
            if before is not None and is_done and each.told == each.position:
                before.last = each.last
            else:
                kept.append(each)
        self.passes = kept


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFinding:
    """What a certificate proves."""

    holds: bool
    """Whether the sum is the one that it must be."""
    words: str


def examine(certificate: Certificate) -> CertificateFinding:
    """Compare the sum with the one that follows from the lengths."""
    expected = sum(each.sum_of(0, each.told) for each in certificate.passes) % _MODULUS
    twice = sorted({f"{each.name} of epoch {number}" for each, number in _done_twice(certificate.passes)})
    if expected != certificate.digest or twice:
        more = f": more than one pass over {', '.join(twice)}" if twice else ""
        return CertificateFinding(holds=False, words=f"samples were left out or used more than once{more}")
    latest = max((each.last for each in certificate.passes), default=0)
    shown = certificate.copy()
    shown.put_together(latest + 1)
    words = [_words(each, latest) for each in shown.passes if each.told]
    by_plan = f" ({certificate.by_plan:,} of them in the step in which a worker died)" if certificate.by_plan else ""
    return CertificateFinding(holds=True, words="; ".join(words) + by_plan if words else "no samples yet")


def _words(each: CertifiedPass, latest: int) -> str:
    epochs = f"epoch {each.first}" if each.first == each.last else f"epochs {each.first}-{each.last}"
    what = f"{each.name}, {epochs}"
    if each.is_whole and each.told == each.length:
        return f"{what}: each of {each.length:,} samples once"
    of = f" of {each.length:,}" if each.length is not None else ""
    left = " so far" if each.last == latest else ", and no other"
    return f"{what}: {each.told:,}{of} samples once{left}"


def _done_twice(passes: Iterable[CertifiedPass]) -> Iterator[tuple[CertifiedPass, int]]:
    seen: set[tuple[str, int]] = set()
    for each in passes:
        for epoch in range(each.first, each.last + 1):
            if (each.name, epoch) in seen:
                yield each, epoch
            seen.add((each.name, epoch))
