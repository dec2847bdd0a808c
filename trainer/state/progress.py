"""How far a job has come: what is counted, and goes with the state from worker to worker and into durable
checkpoints.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Cursor:
    """Where one data set stands within an epoch."""

    epoch: int = 0
    position: int = 0
    """Samples of this epoch that were taken, over all workers."""
    length: int | None = None
    """Samples of this epoch; None: not known before its end."""
    padded: int = 0
    """Samples taken twice in this epoch, to give every worker one in its last step."""
    repeated: int = 0
    """Samples of this epoch taken again, because a failure undid what was not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The account of an epoch's samples. Every sample that is due is seen exactly once, beside `padded` and
    `repeated`.
    """

    epoch: int
    due: int | None
    seen: int
    """Taken and committed."""
    uncommitted: int
    """Taken since the last commit."""
    padded: int
    repeated: int


@dataclass(slots=True, kw_only=True)
class Progress:
    """Counters of a job; the same on every worker at every commit."""

    commits: int = 0
    optimizer_steps: int = 0
    epoch_done: bool = False
    """The epoch's data is exhausted: who goes on from here begins the next epoch."""
    lineage: str = ""
    """Identity of this run of the job in memory, made by the first rank 0; fences checkpoint writers where no
    launcher does."""
    size: int = 0
    """Workers of the present world."""
    factor_start: float = 1.0
    """Factor on the learning rate when this world began."""
    resized_at: int = 0
    """`optimizer_steps` when this world began."""
    cursors: dict[str, Cursor] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, values: Mapping[str, Any]) -> "Progress":
        """Read `state_dict()`; what a later version added is left out."""
        known = {name: values[name] for name in cls.__slots__ if name in values}
        known["cursors"] = {
            name: Cursor(**{key: cursor[key] for key in Cursor.__slots__ if key in cursor})
            for name, cursor in values.get("cursors", {}).items()
        }
        return cls(**known)

    def undone_since(self, committed: "Progress") -> None:
        """Count what is taken again once `committed` is gone back to; called on the committed side's copy."""
        for name, cursor in self.cursors.items():
            live = committed.cursors.get(name)
            if live is not None and live.epoch == cursor.epoch:
                cursor.repeated += max(0, live.position - cursor.position)
