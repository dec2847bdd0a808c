"""Why a world changes, as values. The status file, the log and the metrics render them."""

from dataclasses import dataclass
from enum import StrEnum


class CauseKind(StrEnum):
    """The kinds of causes. The values are the label `cause` of the metric `resizes_total`."""

    JOINED = "joined"
    """A host came, or came to have more processes."""
    REMOVED = "removed"
    """A host left the list, or came to have fewer processes."""
    LOST = "lost"
    """A process died or failed."""
    LEFT = "left"
    """A process ended because its world could not form; its host may be used again."""
    HUNG = "hung"
    """A process neither answered nor ended and was written off."""
    OTHER = "other"
    """No host is the cause: a member asked for a new world."""


_VERBS = {
    CauseKind.JOINED: "joined",
    CauseKind.REMOVED: "removed",
    CauseKind.LOST: "lost:",
    CauseKind.LEFT: "left:",
    CauseKind.HUNG: "written off:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for a new world. `str(cause)` is the sentence for a person: `c joined`, `b[0] lost: exit code 3`."""

    kind: CauseKind
    host: str = ""
    """The host's label; empty for OTHER."""
    local_rank: int | None = None
    """The process, where the cause is a single one."""
    detail: str = ""
    """What the sentence adds: an exit code in words, or how many processes."""

    def __str__(self) -> str:
        process = "" if self.local_rank is None else f"[{self.local_rank}]"
        parts = (f"{self.host}{process}", _VERBS.get(self.kind, ""), self.detail)
        return " ".join(filter(None, parts))


def describe_causes(causes: tuple[Cause, ...]) -> str:
    """All causes in one line, for a person."""
    return "; ".join(map(str, causes))
