"""What has happened since the last world began to run: the causes of the next one, and when the pause began."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hvd_elastic.launcher.core.actions import WorldResized
from hvd_elastic.launcher.core.cause import Cause, CauseKind
from hvd_elastic.launcher.core.slot_placement import Slot


class ResizeCauses:
    """Collects causes until the next world runs."""

    def __init__(self) -> None:
        self._causes: dict[Cause, None] = {}
        self._size_before = 0
        self._pause_began: float | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Each cause once, in the order of their first appearance."""
        return tuple(self._causes)

    def add(self, *causes: Cause) -> None:
        """Add causes of the next world."""
        self._causes.update(dict.fromkeys(causes))

    def begin_pause(self, now: float) -> None:
        """A member was notified, has died, or asks for a place. The first of these begins the pause."""
        if self._pause_began is None:
            self._pause_began = now

    def end_pause(self, generation: int, size: int, now: float) -> WorldResized:
        """The next world runs. What comes from here on counts towards the one after it."""
        resized = WorldResized(
            generation=generation,
            before=self._size_before,
            after=size,
            causes=self.causes,
            pause_seconds=None if self._pause_began is None else now - self._pause_began,
        )
        self._causes, self._size_before, self._pause_began = {}, size, None
        return resized


def world_differences(before: Sequence[Slot], after: Sequence[Slot], known: Iterable[Cause]) -> list[Cause]:
    """How two worlds differ, one cause per host.

    A host that a cause in `known` already names is not reported as removed again.
    """
    labels = {slot.host.alias: slot.host.label for slot in (*before, *after)}
    old, new = (Counter(slot.host.alias for slot in world) for world in (before, after))
    named = {cause.host for cause in known}
    joined = [Cause(kind=CauseKind.JOINED, host=labels[alias]) for alias in new if not old[alias]]
    grown = [
        Cause(kind=CauseKind.JOINED, host=labels[alias], detail=f"with {new[alias] - count} more")
        for alias, count in old.items()
        if new[alias] > count
    ]
    removed = [
        Cause(
            kind=CauseKind.REMOVED,
            host=labels[alias],
            detail=f"but for {new[alias]} of {count}" if new[alias] else "",
        )
        for alias, count in old.items()
        if new[alias] < count and labels[alias] not in named
    ]
    return joined + grown + removed
