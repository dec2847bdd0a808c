"""What a rank says that gets on with nothing: `contract.WAIT_FILE`, as a value; and all of them in one sentence.

The documents come from pods in which anybody's script runs: one with a value of a wrong type is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hvd_elastic.system.untrusted_values import finite_number, one_line, whole_number

_RANKS: Final = range(10**6)
_MAX_SECONDS: Final = 366 * 86400.0
"""No wait is longer: its beginning is a time that is written."""
_MAX_WORDS: Final = 160
_MAX_RANKS: Final = 8
"""That one part of the sentence names; the rest are counted."""
_MAX_PARTS: Final = 4
"""Parts of the sentence; the rest of the ranks are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """One rank, and what it has done for some seconds without a break."""

    rank: int
    size: int
    """Of its world."""
    seconds: float
    after: float
    """The seconds after which it counts as a stall."""
    operation: str = ""
    """The collective operation in which it waits; empty: it computes."""
    place: str = ""
    """The script's line."""

    @property
    def is_long(self) -> bool:
        """Whether it is to be told."""
        return self.seconds >= self.after


def rank_waits(value: object) -> tuple[RankWait, ...]:
    """The ranks in a worker's list; what is no rank's word is left out."""
    made = map(_rank_wait, value if isinstance(value, list) else ())
    return tuple(each for each in made if each is not None)


def _rank_wait(document: object) -> RankWait | None:
    if not isinstance(document, dict):
        return None
    rank, size = whole_number(document.get("rank"), _RANKS), whole_number(document.get("size"), _RANKS)
    seconds, after = _duration(document.get("seconds")), _duration(document.get("after"))
    operation = one_line(document.get("operation", ""), _MAX_WORDS)
    place = one_line(document.get("place", ""), _MAX_WORDS)
    if rank is None or size is None or seconds is None or after is None or operation is None or place is None:
        return None
    return RankWait(rank=rank, size=size, seconds=seconds, after=after, operation=operation, place=place)


def _duration(value: object) -> float | None:
    return finite_number(value, least=0, below=_MAX_SECONDS)


def stall_words(waits: Iterable[RankWait]) -> str:
    """`ranks 0, 1 wait in allreduce grad.w at train.py:40 in train; rank 2 computes at train.py:57 in evaluate`.

    Those who wait come first. Ranks that have said nothing are named, too: they may be stopped, or compute in a
    library that lets no other thread run.
    """
    known = {each.rank: each for each in waits}
    size = max((each.size for each in known.values()), default=0)
    same: dict[str, list[int]] = {}
    for each in sorted(known.values(), key=lambda each: (not each.operation, each.rank)):
        same.setdefault(_does(each), []).append(each.rank)
    silent = size - sum(rank < size for rank in known)
    first_silent = list(islice((rank for rank in range(size) if rank not in known), _MAX_RANKS))
    parts = [f"{_ranks(ranks, len(ranks))} {_plural(does, ranks)}" for does, ranks in list(same.items())[:_MAX_PARTS]]
    more = sum(len(ranks) for ranks in list(same.values())[_MAX_PARTS:])
    parts += [f"{more} more wait or compute elsewhere"] if more else []
    parts += [f"nothing is heard of {_ranks(first_silent, silent)}"] if silent else []
    return "; ".join(parts)


def _does(wait: RankWait) -> str:
    at = f" at {wait.place}" if wait.place else ""
    return f"waits in {wait.operation}{at}" if wait.operation else f"computes{at}"


def _plural(does: str, ranks: Sequence[int]) -> str:
    verb, _, rest = does.partition(" ")
    verb = verb if len(ranks) == 1 else verb.removesuffix("s")
    return f"{verb} {rest}".rstrip()


def _ranks(first: Sequence[int], count: int) -> str:
    """So many ranks, of which the first are named."""
    named = ", ".join(map(str, first[:_MAX_RANKS]))
    more = f" and {count - _MAX_RANKS} more" if count > _MAX_RANKS else ""
    return f"rank{'s' if count > 1 else ''} {named}{more}"
