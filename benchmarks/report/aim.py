"""What was promised of a figure, beside what was measured."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of an aim."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """One figure and its bound, in the same unit."""

    what: str
    """The figure, with its unit, as a reader of nothing else understands it."""
    bound: float
    measured: float | None
    """None: this run has no such figure. Infinite: what was waited for never came."""
    is_least: bool = False
    """Whether the figure is to be at least the bound; else at most."""
    format: str = ".2f"
    """How both are shown, as Python's `format()` takes it."""
    reason: str = ""
    """Why it is missed where it is, or what else a reader must know of it."""

    @property
    def outcome(self) -> Outcome:
        """Whether the figure keeps to the bound."""
        if self.measured is None:
            return Outcome.UNKNOWN
        is_within = self.measured >= self.bound if self.is_least else self.measured <= self.bound
        never = math.isinf(self.measured) and not self.is_least
        return Outcome.MET if is_within and not never else Outcome.MISSED

    @property
    def promised(self) -> str:
        """The bound, as a person reads it."""
        return f"at {'least' if self.is_least else 'most'} {format(self.bound, self.format)}"

    @property
    def found(self) -> str:
        """The figure, as a person reads it."""
        if self.measured is None:
            return "-"
        return "never" if self.measured == math.inf else format(self.measured, self.format)
