"""Why a world changes, as values. The status file, the log and the metrics render them."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.launcher.core.slot_placement import Slot


class CauseKind(StrEnum):
    """The kinds of causes. The values are the label `cause` of the metric `resizes_total`."""

    JOINED = "joined"
    """A host came, or came to have more processes."""
    REMOVED = "removed"
    """A host left the list, or came to have fewer processes."""
    SURPLUS = "surplus"
    """A host is left over: no allowed size needs it. It joins again with others."""
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
    CauseKind.SURPLUS: "is surplus",
    CauseKind.LOST: "lost:",
    CauseKind.LEFT: "left:",
    CauseKind.HUNG: "written off:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeCause:
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


def describe_causes(causes: tuple[ResizeCause, ...]) -> str:
    """All causes in one line, for a person."""
    return "; ".join(map(str, causes))


def world_differences(
    before: Sequence[Slot], after: Sequence[Slot], known: Iterable[ResizeCause], usable: Container[str] = ()
) -> list[ResizeCause]:
    """How two worlds differ, one cause per host.

    A host that a cause in `known` already names is not reported as removed again. `usable`: aliases of hosts that could
    be used: they are not removed, but surplus.
    """
    labels = {slot.host.alias: slot.host.label for slot in (*before, *after)}
    old, new = (Counter(slot.host.alias for slot in world) for world in (before, after))
    named = {cause.host for cause in known}
    joined = [ResizeCause(kind=CauseKind.JOINED, host=labels[alias]) for alias in new if not old[alias]]
    grown = [
        ResizeCause(kind=CauseKind.JOINED, host=labels[alias], detail=f"with {new[alias] - count} more")
        for alias, count in old.items()
        if new[alias] > count
    ]
    removed = [
        ResizeCause(
            kind=CauseKind.SURPLUS if alias in usable else CauseKind.REMOVED,
            host=labels[alias],
            detail=f"but for {new[alias]} of {count}" if new[alias] else "",
        )
        for alias, count in old.items()
        if new[alias] < count and labels[alias] not in named
    ]
    return joined + grown + removed
