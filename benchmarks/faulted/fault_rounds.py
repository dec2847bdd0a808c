"""What one fault has cost one system, round by round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.faulted.fault_cost import FaultCost
from benchmarks.report import measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRounds:
    """Each time that a fault befell a system."""

    fault: str
    system: str
    costs: Sequence[FaultCost]

    def keep(self, folder: Path) -> None:
        """Write it into a file, for a report."""
        measurements.keep(folder, f"{self.fault}-{self.system}", self)

    @classmethod
    def from_json(cls, *, costs: Sequence[Mapping[str, Any]], **fields: Any) -> Self:
        """What `keep` has written."""
        return cls(**fields, costs=[FaultCost(**cost) for cost in costs])
