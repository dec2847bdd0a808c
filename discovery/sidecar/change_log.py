"""The log of what the launcher is told: a change that comes alone at once, many changes a second in one line."""

import logging
from collections.abc import Iterable
from typing import Final

from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.sidecar.publisher import SnapshotChange
from hvd_elastic.discovery.snapshot import Snapshot

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 1.0
"""Between two lines. A line costs as much as deciding and writing the list."""
NAMED: Final = 100
"""Hosts of one line that are named; the rest are counted. More come and go only where a whole job does."""


class ChangeLog:
    """Remembers changes until they are written. Called by one thread, with a clock that does not jump."""

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._left: list[str] = []
        self._first = 0
        self._last: Snapshot | None = None
        self._written = -GATHER_SECONDS

    def note(self, snapshot: Snapshot, change: SnapshotChange, roster: Inventory) -> None:
        """The launcher is told `snapshot`. Why a host left is known now; a moment later it may be another reason."""
        self._first = snapshot.generation if self._last is None else self._first
        self._last = snapshot
        self._joined += [host.pod for host in change.joined]
        self._left += [f"{host.pod} ({roster.why_not(host.uid)})" for host in change.left]

    def write(self, now: float) -> None:
        """Log what was noted, if that is due."""
        if self._last is not None and now >= self._written + GATHER_SECONDS:
            self._written = now
            self.close()

    def close(self) -> None:
        """Log what was noted, due or not."""
        last, self._last = self._last, None
        if last is None:
            return
        several = f"{self._first} to {last.generation}"
        log.info(
            "generation %s: %d hosts, %s; joined: %s; left: %s",
            last.generation if last.generation == self._first else several,
            len(last.hosts),
            last.state,
            _named(self._joined),
            _named(self._left),
        )
        self._joined, self._left = [], []


def _named(names: Iterable[str]) -> str:
    every = sorted(names)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more or "none"
