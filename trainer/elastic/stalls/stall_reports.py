"""When a rank that gets on with nothing says so: values in, a report out, without a clock or a thread.

A wait is told once it is long enough, again each time that it has doubled, and once more when it is over. A rank that
computes is told in the same way; but scripts evaluate at every epoch, so a spell of computing is told only if it is
twice as long as any before.
"""

import math
from dataclasses import dataclass

from hvd_elastic.trainer.collectives.collective_calls import Occupation


@dataclass(frozen=True, slots=True, kw_only=True)
class StallReport:
    """Something that the log is to say."""

    seconds: float
    operation: str
    """In which the rank waits, or has waited; empty: it computes."""
    is_over: bool = False


class StallReports:
    """Decides for one rank. Not thread-safe."""

    def __init__(self, after_seconds: float, *, tells_computing: bool = True) -> None:
        """`after_seconds`: how long a spell is before it is told. `tells_computing`: one without an operation, too."""
        self._after = after_seconds
        self._computes_after = after_seconds if tells_computing else math.inf
        self._present: Occupation | None = None
        self._next = after_seconds
        """Length of the present spell, in seconds, at which it is told."""
        self._is_told = False

    def look(self, present: Occupation | None, now: float) -> list[StallReport]:
        """What is to be said of `present` at `now`, by the clock of `Occupation.since`. None: nothing is watched."""
        before, was_told = self._present, self._is_told
        reports = []
        if before is None or present is None or before.number != present.number:
            self._present, self._is_told = present, False
            if present is not None:
                self._next = self._after if present.operation else self._computes_after
            if before is not None and present is not None and was_told:
                reports.append(self._end(before, present.since - before.since))
        if present is not None and now - present.since >= self._next:
            self._is_told = True
            self._next = 2 * (now - present.since)
            reports.append(StallReport(seconds=now - present.since, operation=present.operation))
        return reports

    def _end(self, spell: Occupation, seconds: float) -> StallReport:
        if not spell.operation:
            self._computes_after = max(self._computes_after, 2 * seconds)
        return StallReport(seconds=seconds, operation=spell.operation, is_over=True)
