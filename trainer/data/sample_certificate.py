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
from itertools import pairwise
from typing import Any, Final, Self

from hvd_elastic.trainer.data.certified_pass import KEPT_ROWS, MODULUS, OTHERS, CertifiedPass, FoldedEpochs

_FOLDED_AT_ONCE: Final = 2 * KEPT_ROWS
"""Training waits for it, and the certificate of an older version may have thousands of rows."""
_PASS: Final = tuple(each.name for each in fields(CertifiedPass))
"""The columns of a row. New ones come last."""
_LENGTH, _TOLD = _PASS.index("length"), _PASS.index("told")
_FOLDED: Final = tuple(each.name for each in fields(FoldedEpochs))
"""The same of those that are folded."""


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

    def tell(self, written: dict[str, Any]) -> None:
        """Bring up to date what was written of these passes before all workers had told: no row is written again."""
        written["digest"] = self.digest
        for row, each in zip(written["passes"], self.passes, strict=True):
            row[_LENGTH], row[_TOLD] = each.length, each.told

    def find(self, name: str, epoch: int) -> CertifiedPass | None:
        """The pass that is under way."""
        return next((each for each in self.passes if each.name == name and each.first == each.last == epoch), None)

    def add(self, digest: int) -> None:
        """Add what all workers have told."""
        self.digest = (self.digest + digest) % MODULUS

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
        name = ended.name if ended.name in names or len(names) < KEPT_ROWS - 1 else OTHERS
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
    if due % MODULUS != certificate.digest or twice:
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
