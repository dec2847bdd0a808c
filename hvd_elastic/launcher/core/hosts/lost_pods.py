"""What became of pods whose processes are gone: they were taken away, or only the processes have failed.

Both leave the list of hosts: a pod whose process dies is not listed until its next standby is warm. A pod that comes
back, known by its UID, was not taken away. That another one has come in its place says that it was, and so does a pod
that stays away.
"""

import math
from collections.abc import Iterable
from enum import StrEnum


class LostPodsVerdict(StrEnum):
    """What became of all lost pods together."""

    NONE = "none"
    """No pod was lost."""
    CAME_BACK = "came-back"
    """All are listed: their processes have failed."""
    TAKEN_AWAY = "taken-away"
    """At least one of them was, which excuses the others."""
    UNKNOWN = "unknown"
    """It shows by `deadline`."""


class LostPods:
    """Takes the list of pods and what was lost of them. Times are of one clock, in seconds."""

    def __init__(self, *, patience: float, lead: float = 0.0) -> None:
        """`patience`: a pod that is not back after this time was taken away.

        `lead`: a pod may be listed this long before the loss of the one that it replaces is known.
        """
        self._patience, self._lead = patience, lead
        self._came: dict[str, float] = {}
        """When each pod was listed for the first time."""
        self._listed: frozenset[str] = frozenset()
        self._lost: dict[str, float] = {}

    def set_listed(self, uids: Iterable[str], now: float) -> None:
        """Take the present list."""
        self._listed = frozenset(uids)
        for uid in self._listed:
            self._came.setdefault(uid, now)

    def lose(self, uid: str, now: float) -> None:
        """A process of this pod is gone, or the pod has left the list."""
        self._lost[uid] = now

    def forget(self, *, before: float = math.inf) -> None:
        """What was lost before this time is over, and so is what is known of pods that have gone."""
        self._lost = {uid: when for uid, when in self._lost.items() if when >= before}
        self._came = {uid: when for uid, when in self._came.items() if uid in self._listed or uid in self._lost}

    @property
    def missing(self) -> dict[str, float]:
        """The lost pods that are not listed, and since when."""
        return {uid: when for uid, when in self._lost.items() if uid not in self._listed}

    @property
    def deadline(self) -> float:
        """When pods that are still missing will have been taken away; infinite if none is missing."""
        return max(self.missing.values(), default=math.inf) + self._patience

    def verdict(self, now: float) -> LostPodsVerdict:
        """What is known now."""
        missing = self.missing
        if not missing:
            return LostPodsVerdict.CAME_BACK if self._lost else LostPodsVerdict.NONE
        first = min(missing.values()) - self._lead
        has_successor = any(self._came[uid] >= first for uid in self._listed - self._lost.keys())
        is_late = now >= max(missing.values()) + self._patience
        return LostPodsVerdict.TAKEN_AWAY if has_successor or is_late else LostPodsVerdict.UNKNOWN
