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

A job of months has ever so many epochs, so a certificate does not grow with them. Epochs of one kind are one row, which
keeps what its earlier epochs must come to: only new ones are looked at. Of the rows that have ended, the oldest are
folded: what they must come to is added to one number, and their samples are counted. A fault in any of them still shows
for good, because what was used stays in the sum.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt

from hvd_elastic.trainer.data.sampler import SampleOrder, derived_seed, keyed_hash

_MODULUS: Final = 1 << 64
_CHUNK: Final = 1 << 20
"""Samples that are hashed at a time."""
KEPT_ROWS: Final = 8
"""Most rows of epochs that have ended, and most names of those that are folded."""
_FOLDED_AT_ONCE: Final = 2 * KEPT_ROWS
"""Training waits for it, and the certificate of an older version may have thousands of rows."""
_OTHERS: Final = "other passes"

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
        return sum(self._sum_in(epoch, start, stop) for epoch in range(self.first, self.last + 1)) % _MODULUS

    def due(self) -> int:
        """What this pass must come to. Only epochs of which it is not known are looked at."""
        new = range(self.first + self.known_epochs, self.last + 1)
        return (self.known_sum + sum(self._sum_in(epoch, 0, self.told) for epoch in new)) % _MODULUS

    def _sum_in(self, epoch: int, start: int, stop: int) -> int:
        if self.shuffle is None or self.length is None:
            return _sum_of_epoch(self.name, epoch, None, start, stop)
        order = (self.length, self.seed, self.shuffle)
        if start or 2 * stop < self.length:
            return _sum_of_epoch(self.name, epoch, order, start, stop)
        # All samples have one sum in any order, and to compute an order takes far longer than to hash.
        left = _sum_of_epoch(self.name, epoch, order, stop, self.length) if stop < self.length else 0
        return (_sum_of_epoch(self.name, epoch, None, 0, self.length) - left) % _MODULUS


_PASS: Final = tuple(each.name for each in fields(CertifiedPass))
"""The columns of a row. New ones come last."""


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
        return self.name != _OTHERS and self.epochs == self.last - self.first + 1

    def add(self, ended: CertifiedPass) -> None:
        self.first, self.last = min(self.first, ended.first), max(self.last, ended.last)
        self.epochs += ended.epochs
        self.samples += ended.told * ended.epochs
        self.due = (self.due + ended.due()) % _MODULUS

    def words(self) -> str:
        epochs = "epochs" if self.is_dense else f"{self.epochs:,} of the epochs"
        return f"{self.name}, {epochs} {self.first}-{self.last}: {self.samples:,} samples once, and no other"


_FOLDED: Final = tuple(each.name for each in fields(FoldedEpochs))
"""The columns of a row. New ones come last."""


@dataclass(slots=True, kw_only=True)
class Certificate:
    """What is part of a commit."""

    digest: int = 0
    """The sum over all samples that were told, modulo 2^64."""
    by_plan: int = 0
    """Of these, samples that the plan of the data stands in for."""
    passes: list[CertifiedPass] = field(default_factory=list)
    folded: list[FoldedEpochs] = field(default_factory=list)

    def copy(self) -> "Certificate":
        passes, folded = [replace(each) for each in self.passes], [replace(each) for each in self.folded]
        return Certificate(digest=self.digest, by_plan=self.by_plan, passes=passes, folded=folded)

    def state_dict(self) -> dict[str, Any]:
        """As plain values, a row for each pass. It is copied at every commit: lists of numbers cost the least."""
        passes = [[getattr(each, name) for name in _PASS] for each in self.passes]
        folded = [[getattr(each, name) for name in _FOLDED] for each in self.folded]
        return {"digest": self.digest, "by_plan": self.by_plan, "passes": passes, "folded": folded}

    @classmethod
    def from_state_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a `state_dict()`. Fields that a later version added are ignored."""
        passes = [CertifiedPass(**dict(zip(_PASS, row, strict=False))) for row in values["passes"]]
        folded = [FoldedEpochs(**dict(zip(_FOLDED, row, strict=False))) for row in values.get("folded", ())]
        return cls(digest=values["digest"], by_plan=values["by_plan"], passes=passes, folded=folded)

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
                self.by_plan += (each.position - each.told) * each.epochs
                each.told = each.position

    def put_together(self, epoch: int, busy: Sequence[CertifiedPass | None] = ()) -> None:
        """Put passes of epochs before `epoch` together, and fold the oldest: any number takes the room of a few.

        `busy`: passes that still have samples to tell.
        """
        kept = {id(each) for each in busy}
        kept |= {id(each) for each in self.passes if each.last >= epoch or each.told != each.position}
        rows = _put_together(each for each in self.passes if id(each) not in kept)
        excess = min(max(0, len(rows) - KEPT_ROWS), _FOLDED_AT_ONCE)
        for each in rows[:excess]:
            self._fold(each)
        kept |= {id(each) for each in rows[excess:]}
        self.passes = [each for each in self.passes if id(each) in kept]

    def _fold(self, ended: CertifiedPass) -> None:
        names = {each.name: each for each in self.folded}
        name = ended.name if ended.name in names or len(names) < KEPT_ROWS - 1 else _OTHERS
        if name not in names:
            names[name] = FoldedEpochs(name=name, first=ended.first, last=ended.last)
            self.folded.append(names[name])
        names[name].add(ended)

    def note_ended(self) -> None:
        """Note what epochs that are put together must come to, so that nobody has to look at them again.

        Another one may still have samples to tell.
        """
        for each in self.passes:
            if each.epochs > 1:
                each.known_sum, each.known_epochs = each.due(), each.epochs

    def learn(self, examined: "Certificate") -> None:
        """Take over what another certificate has noted of the same epochs."""
        known = {(each.first, each.kind): each for each in examined.passes}
        for each in self.passes:
            same = known.get((each.first, each.kind))
            if same is not None and each.known_epochs < same.known_epochs <= each.epochs:
                each.known_epochs, each.known_sum = same.known_epochs, same.known_sum

    def forget(self) -> None:
        """Take nothing for known that follows from lengths and orders."""
        for each in self.passes:
            each.known_epochs = each.known_sum = 0


def _put_together(ended: Iterable[CertifiedPass]) -> list[CertifiedPass]:
    """Put epochs of one kind that follow each other into the first of them. Takes time linear in the rows."""
    rows: list[CertifiedPass] = []
    ending: dict[tuple[int, tuple[object, ...]], CertifiedPass] = {}
    for each in ended:
        before = ending.pop((each.first - 1, each.kind), None)
        if before is None:
            rows.append(each)
        else:
            before.last = each.last
        ending[each.last, each.kind] = before or each
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFinding:
    """What a certificate proves."""

    holds: bool
    """Whether the sum is the one that it must be."""
    words: str


def examine(certificate: Certificate) -> CertificateFinding:
    """Compare the sum with the one that follows from the lengths, and note in the certificate what does."""
    certificate.note_ended()
    due = sum(each.due() for each in certificate.passes) + sum(each.due for each in certificate.folded)
    twice = [f"{name} of epoch {epoch}" for name, epoch in _done_twice(certificate)]
    if due % _MODULUS != certificate.digest or twice:
        more = f": more than one pass over {', '.join(twice)}" if twice else ""
        return CertificateFinding(holds=False, words=f"samples were left out or used more than once{more}")
    latest = max((each.last for each in certificate.passes), default=0)
    rows = _put_together(replace(each) for each in certificate.passes if each.told)
    # The newest first: `status` has no room for all.
    words = [_words(each, latest) for each in sorted(rows, key=lambda row: row.last, reverse=True)]
    words += [each.words() for each in certificate.folded]
    by_plan = f" ({certificate.by_plan:,} of them in the step in which a worker died)" if certificate.by_plan else ""
    return CertificateFinding(holds=True, words="; ".join(words) + by_plan if words else "no samples yet")


def _words(each: CertifiedPass, latest: int) -> str:
    epochs = f"epoch {each.first}" if each.first == each.last else f"epochs {each.first}-{each.last}"
    what = f"{each.name}, {epochs}"
    if each.is_whole:
        return f"{what}: each of {each.length:,} samples once"
    of = f" of {each.length:,}" if each.length is not None else ""
    left = " so far" if each.last == latest else ", and no other"
    return f"{what}: {each.told:,}{of} samples once{left}"


def _done_twice(certificate: Certificate) -> Iterator[tuple[str, int]]:
    """Names and epochs. Where epochs are folded that do not follow each other, their sum alone would tell."""
    rows: list[CertifiedPass | FoldedEpochs] = [*certificate.passes]
    rows += (each for each in certificate.folded if each.is_dense)
    for before, each in pairwise(sorted(rows, key=lambda row: (row.name, row.first))):
        if before.name == each.name and each.first <= before.last:
            yield each.name, each.first
