"""The number of workers over time as a chart of characters, with a letter below each loss of a worker."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
LETTERS: Final = {
    Departure.PREEMPTED: "P",
    Departure.EVICTED: "E",
    Departure.NODE_LOST: "N",
    Departure.DRAINED: "D",
    Departure.SLOW: "D",
    Departure.SCALED_DOWN: "S",
    Departure.SUSPENDED: "S",
    Departure.FAILED: "F",
    Departure.DELETED: "X",
}
"""Below the chart. A process that was lost is a K."""
PROCESS_LOST: Final = "K"
_WORDS: Final = {
    "P": "preempted",
    "E": "evicted",
    "N": "node lost",
    "D": "drained",
    "S": "scaled down or suspended",
    "F": "failed",
    "X": "deleted",
    "K": "process lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the chart shows: `seconds` up to `end`, in `width` columns."""

    end: float
    """Unix seconds."""
    seconds: float
    width: int

    def column(self, unix: float) -> int:
        """The column of a time. Times before the window have a negative one."""
        return math.floor((unix - (self.end - self.seconds)) / self.seconds * self.width)


def chart(entries: Iterable[Entry], window: Window, *, highest: int, height: int) -> list[str]:
    """`height` rows of blocks from top to bottom, then the row of letters. `highest`: workers of a full column."""
    entries = tuple(entries)
    sizes = column_sizes(entries, window)
    rows = [
        "".join(_block(size / max(1, highest) * height - (height - 1 - row)) for size in sizes) for row in range(height)
    ]
    return [*rows, losses(entries, window)]


def column_sizes(entries: Iterable[Entry], window: Window) -> list[int]:
    """How many workers train at the end of each column.

    A column in which somebody left and came back shows the least: a dip must not hide behind a resize.
    """
    changes: list[tuple[float, int]] = []
    for entry in entries:
        if isinstance(entry, WorldChanged):
            changes.append((entry.unix, len(entry.workers)))
        elif isinstance(entry, JobEnded):
            changes.append((entry.unix, 0))
    sizes, size, following = [], 0, iter((*changes, (math.inf, 0)))
    unix, coming = next(following)
    for column in range(window.width):
        least = math.inf
        while unix < math.inf and window.column(unix) <= column:
            least = min(least, coming) if window.column(unix) == column else math.inf
            size = coming
            unix, coming = next(following)
        sizes.append(int(min(size, least)))
    return sizes


def losses(entries: Iterable[Entry], window: Window) -> str:
    """One letter for each column in which a worker was lost; the last one's where there were several."""
    letters = [" "] * window.width
    for entry in entries:
        letter = _letter(entry)
        if letter and 0 <= window.column(entry.unix) < window.width:
            letters[window.column(entry.unix)] = letter
    return "".join(letters)


def legend(letters: str) -> str:
    """What the letters of a row of losses stand for; empty if there are none."""
    return "  ".join(f"{letter} {words}" for letter, words in _WORDS.items() if letter in letters)


def first_change(entries: Sequence[Entry]) -> float | None:
    """When somebody trained first, as far as the entries go back."""
    return next((entry.unix for entry in entries if isinstance(entry, WorldChanged)), None)


def _letter(entry: Entry) -> str:
    match entry:
        case WorkerLeaving(why=why):
            return LETTERS[why]
        case WorkerProcessLost():
            return PROCESS_LOST
        case _:
            return ""


def _block(filled: float) -> str:
    return _BLOCKS[round(min(1.0, max(0.0, filled)) * (len(_BLOCKS) - 1))]
