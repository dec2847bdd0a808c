"""Why a world changes, in words, and the few kinds of such causes that are counted."""

from collections import Counter
from collections.abc import Sequence

from hvd_elastic.launcher.core.actions import Resized
from hvd_elastic.launcher.core.slot_placement import Slot

_KINDS = {" joined": "joined", " removed": "removed", " lost": "lost", " written off": "hung", " left": "left"}


class ResizeCauses:
    """What has happened since the last world began to run."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self._size_before = 0
        self._disturbed: float | None = None

    def disturb(self, now: float) -> None:
        """A member was notified, has died, or asks: the pause is counted from the first time on."""
        if self._disturbed is None:
            self._disturbed = now

    def words(self) -> str:
        """All causes, for a person."""
        return "; ".join(dict.fromkeys(self.causes))

    def end(self, generation: int, size: int, now: float) -> Resized:
        """The next world runs; from here on everything counts towards the one after it."""
        resized = Resized(
            generation=generation,
            before=self._size_before,
            after=size,
            causes=tuple(dict.fromkeys(self.causes)),
            pause_seconds=None if self._disturbed is None else now - self._disturbed,
        )
        self.causes, self._size_before, self._disturbed = [], size, None
        return resized


def differences(before: Sequence[Slot], after: Sequence[Slot], said: Sequence[str]) -> list[str]:
    """What tells two worlds apart, a phrase a host; a host that `said` names already is not named as removed again."""
    labels = {slot.host.alias: slot.host.label for slot in (*before, *after)}
    old, new = (Counter(slot.host.alias for slot in world) for world in (before, after))
    named = {alias for alias, label in labels.items() if any(c.startswith((f"{label}[", f"{label} ")) for c in said)}
    joined = [f"{labels[alias]} joined" for alias in new if not old[alias]]
    grown = [f"{labels[a]} joined with {new[a] - count} more" for a, count in old.items() if new[a] > count]
    removed = [
        f"{labels[a]} removed" + (f" but for {new[a]} of {count}" if new[a] else "")
        for a, count in old.items()
        if new[a] < count and a not in named
    ]
    return joined + grown + removed


def kind_of(cause: str) -> str:
    """The kind of a cause in words: a label of few values."""
    return next((kind for mark, kind in _KINDS.items() if mark in cause), "other")
