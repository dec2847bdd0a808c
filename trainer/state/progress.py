"""How far a job has come: counters that travel with the state, to other workers and into durable checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class Cursor:
    """The position in one data set within an epoch."""

    epoch: int = 0
    position: int = 0
    """Samples of this epoch taken so far, over all workers."""
    length: int | None = None
    """Samples of this epoch; None if that is not known before its end."""
    padded: int = 0
    """Samples taken twice in this epoch, so that every worker has at least one in the last step."""
    repeated: int = 0
    """Samples of this epoch taken again because a failure undid uncommitted steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sample counts of one epoch, over all workers. Every sample that is due is seen exactly once, apart from `padded`
    and `repeated`.
    """

    epoch: int
    due: int | None
    """Samples of the epoch; None if that is not known before its end."""
    seen: int
    """Taken and committed."""
    uncommitted: int
    """Taken since the last commit."""
    padded: int
    """Taken twice, so that every worker has at least one in the last step."""
    repeated: int
    """Taken again because a failure undid uncommitted steps."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """Counters of a job, the same on every worker at every commit."""

    commits: int = 0
    optimizer_steps: int = 0
    epoch_done: bool = False
    """The epoch's data is exhausted: training that continues from here begins the next epoch."""
    lineage: str = ""
    """Identity of the state in memory, made by the first rank 0. It fences checkpoint writers when no launcher
    does."""
    size: int = 0
    """Number of workers in the present world."""
    factor_start: float = 1.0
    """Factor on the learning rate when this world began."""
    resized_at: int = 0
    """`optimizer_steps` when this world began."""
    cursors: dict[str, Cursor] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return all counters as plain values."""
        return asdict(self)

    @classmethod
    def from_state_dict(cls, values: Mapping[str, Any]) -> "Progress":
        """Read a `state_dict()`. Fields that a later version added are ignored."""
        known = {name: values[name] for name in cls.__slots__ if name in values}
        known["cursors"] = {
            name: Cursor(**{key: cursor[key] for key in Cursor.__slots__ if key in cursor})
            for name, cursor in values.get("cursors", {}).items()
        }
        return cls(**known)

    def count_repeated(self, undone: "Progress") -> None:
        """Count the samples that will be taken again, now that training goes back from `undone` to this progress."""
        for name, cursor in self.cursors.items():
            live = undone.cursors.get(name)
            if live is not None and live.epoch == cursor.epoch:
                cursor.repeated += max(0, live.position - cursor.position)
