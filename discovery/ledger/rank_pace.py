"""How long a rank takes for its own part of a step: `contract.PACE_FILE`, as values.

The documents come from pods in which anybody's script runs: one with a value of a wrong type is left out.
"""

from dataclasses import dataclass
from typing import Final

from hvd_elastic.system.untrusted_values import END_OF_DATES, finite_number, whole_number

_RANKS: Final = range(10**6)
_COUNTS: Final = range(1, 10**9)
_MAX_SECONDS: Final = 86400.0
_MAX_BLOCKS: Final = 12
_FIELDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedBlock:
    """Some steps in a row of one rank. Seconds are those of one step."""

    unix: float
    """The end; by `rank_paces`, in seconds since the worker's answer."""
    steps: int
    step_seconds: float
    computing: float
    loading: float | None
    """None: not known, and part of `computing`."""

    @property
    def own(self) -> float:
        """Until the rank waits for others."""
        return self.computing + (self.loading or 0.0)

    @property
    def seconds(self) -> float:
        """How long the block lasted."""
        return self.step_seconds * self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """The last blocks of one rank, oldest first."""

    rank: int
    size: int
    """Of its world."""
    blocks: tuple[PacedBlock, ...]


def rank_paces(value: object, told: object) -> tuple[RankPace, ...]:
    """The paces in a worker's list; what is none is left out.

    `told`: the worker's time when it answered, to which the blocks' times are relative: they are not above zero.
    """
    answered = _time(told)
    made = (_pace(each, answered) for each in (value if isinstance(value, list) and answered is not None else ()))
    return tuple(each for each in made if each is not None)


def _pace(document: object, answered: float | None) -> RankPace | None:
    known = document if isinstance(document, dict) else {}
    rank, size = whole_number(known.get("rank"), _RANKS), whole_number(known.get("size"), _RANKS)
    rows = known.get("blocks")
    if rank is None or size is None or rank >= size or not isinstance(rows, list) or answered is None:
        return None
    blocks = [_block(row, answered) for row in rows[-_MAX_BLOCKS:]]
    return RankPace(rank=rank, size=size, blocks=tuple(block for block in blocks if block is not None))


def _block(row: object, answered: float) -> PacedBlock | None:
    if not isinstance(row, list) or len(row) != _FIELDS:
        return None
    unix, steps, (step_seconds, computing) = _time(row[0]), whole_number(row[1], _COUNTS), map(_duration, row[2:4])
    loading = None if row[4] is None else _duration(row[4])
    if unix is None or steps is None or step_seconds is None or computing is None:
        return None
    if loading is None and row[4] is not None:
        return None
    if unix > answered + 1:  # the worker's clock was set back since: when it ended is not known
        return None
    return PacedBlock(
        unix=unix - answered, steps=steps, step_seconds=step_seconds, computing=computing, loading=loading
    )


def _time(value: object) -> float | None:
    return finite_number(value, least=0, below=END_OF_DATES)


def _duration(value: object) -> float | None:
    return finite_number(value, least=0, below=_MAX_SECONDS)
