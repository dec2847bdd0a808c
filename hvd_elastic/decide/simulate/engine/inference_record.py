"""How long pods of inference waited."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from hvd_elastic.decide.simulate.outcome import InferenceWaiting

MOST_EXACT: Final = 1000
"""Waits of different lengths that are kept as they are. Later ones have four digits, of which there are not many."""


class InferenceRecord:
    """How many pods waited how long. A year of them takes the room of some days."""

    def __init__(self, waits: Iterable[float] = ()) -> None:
        self._pods: Counter[float] = Counter()
        """By the seconds that they waited."""
        self._longest = 0.0
        for seconds in waits:
            self.note(seconds)

    def note(self, seconds: float) -> None:
        """A pod runs that has waited so long."""
        kept = len(self._pods) < MOST_EXACT or seconds in self._pods
        self._pods[seconds if kept else float(f"{seconds:.4g}")] += 1
        self._longest = max(self._longest, seconds)

    def waiting(self, never: int = 0) -> InferenceWaiting:
        """Of the pods that ran; `never`: those that had no room at the end of the day."""
        lengths = sorted(self._pods)
        ends = list(accumulate(self._pods[seconds] for seconds in lengths))
        return InferenceWaiting(
            pods=self._pods.total() + never,
            p50=min(_quantile(lengths, ends, 0.5), self._longest),
            p99=min(_quantile(lengths, ends, 0.99), self._longest),
            max=self._longest,
            never=never,
        )


def _quantile(lengths: Sequence[float], ends: Sequence[int], part: float) -> float:
    """Between the two nearest values, in proportion. 0 if there are none.

    `ends`: how many pods waited so long at most, for each of the ascending lengths.
    """
    if not lengths:
        return 0.0
    place = part * (ends[-1] - 1)
    below, above = (lengths[bisect_right(ends, number)] for number in (int(place), min(int(place) + 1, ends[-1] - 1)))
    return below + (place - int(place)) * (above - below)
