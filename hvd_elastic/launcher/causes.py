"""Why a world changes, in words, and the few kinds of such causes that are counted."""

from collections import Counter
from collections.abc import Sequence

from hvd_elastic.launcher.placement import Slot

_KINDS = {" joined": "joined", " removed": "removed", " lost": "lost", " written off": "hung", " left": "left"}


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
