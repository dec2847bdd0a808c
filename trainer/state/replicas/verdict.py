"""What a comparison of all workers says, and what is to be done. Pure: from what each rank has reported."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NEVER: Final = -1


class Remedy(StrEnum):
    """What is done about workers that differ."""

    NONE = "none"
    """They are alike."""
    MEND = "mend"
    """They differ by rounding: all take the reference's values."""
    STOP = "stop"
    """The script makes them differ: going back would lead here again."""
    LEAVE_OUT = "leave-out"
    """One of three or more differs since a check at which it did not: it leaves, and all others go back."""
    GO_BACK = "go-back"
    """Nobody can say which are right: all go back, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What one rank says of itself at a check."""

    tensors: int
    """Fingerprint of what it holds."""
    rates: int
    """The same of its learning rates."""
    alike_at: int
    """Step of the last check at which it was like all others; NEVER: it was at none."""
    went_back_from: int
    """Step at which all went back because they differed; NEVER: they have not, or have come past it since."""

    @property
    def held(self) -> tuple[int, int]:
        return self.tensors, self.rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The reports of all ranks, side by side."""

    reports: Sequence[RankReport]

    @property
    def are_alike(self) -> bool:
        return len({report.held for report in self.reports}) == 1

    @property
    def rates_differ(self) -> bool:
        return len({report.rates for report in self.reports}) > 1

    @property
    def majority(self) -> tuple[int, int] | None:
        """What more than half of the ranks hold; None: so many do not hold the same."""
        held, count = Counter(report.held for report in self.reports).most_common(1)[0]
        return held if 2 * count > len(self.reports) else None

    @property
    def reference(self) -> int:
        """The lowest rank that holds what most do; rank 0 where no more than half hold the same."""
        majority = self.majority
        return next((rank for rank, report in enumerate(self.reports) if report.held == majority), 0)

    @property
    def differing(self) -> tuple[int, ...]:
        """The ranks that do not hold what the reference does."""
        held = self.reports[self.reference].held
        return tuple(rank for rank, report in enumerate(self.reports) if report.held != held)

    @property
    def alike_at(self) -> int:
        """Step of the last check at which all that differ were alike; NEVER: at least one of them was at none."""
        ranks = self.differing if self.majority is not None else range(len(self.reports))
        return min(self.reports[rank].alike_at for rank in ranks)

    @property
    def went_back_from(self) -> int:
        return max(report.went_back_from for report in self.reports)

    def remedy(self, *, is_rounding: bool, is_of_shape: bool = False) -> Remedy:
        """Decide.

        Args:
            is_rounding: the differences are of a rounding's size.
            is_of_shape: ranks hold other tensors. Default False.
        """
        if self.are_alike:
            return Remedy.NONE
        # No fault of memory makes another learning rate, or another shape, and rounding seldom does.
        if self.rates_differ or is_of_shape:
            return Remedy.STOP
        if is_rounding:
            return Remedy.MEND
        if self.alike_at == NEVER or self.went_back_from != NEVER:
            return Remedy.STOP
        return Remedy.LEAVE_OUT if self.majority is not None and len(self.differing) == 1 else Remedy.GO_BACK
