"""The log of the launcher's list: a single change is logged at once, many changes within a second in one line."""

import logging
from collections.abc import Iterable
from typing import Final

from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.sidecar.publisher import SnapshotChange
from hvd_elastic.discovery.snapshot import Snapshot

log = logging.getLogger(__name__)

LINE_SECONDS: Final = 1.0
"""At least, between two lines. A line costs as much as deciding and writing the list."""
MAX_NAMES: Final = 100
"""Hosts that one line names; the rest are counted. More come and go only when a whole job does."""


class ChangeLog:
    """Gathers changes until they are logged. Not thread-safe; needs a clock that does not jump."""

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._left: list[str] = []
        self._first_generation = 0
        self._last: Snapshot | None = None
        self._flushed = -LINE_SECONDS

    def add(self, snapshot: Snapshot, change: SnapshotChange, inventory: Inventory) -> None:
        """Remember that `snapshot` was published, and why hosts left: a moment later the reason may be another."""
        self._first_generation = snapshot.generation if self._last is None else self._first_generation
        self._last = snapshot
        self._joined += [host.pod for host in change.joined]
        self._left += [f"{host.pod} ({inventory.why_left_out(host)})" for host in change.left]

    def flush_if_due(self, now: float) -> None:
        """Log what was gathered, unless the last line was logged too recently."""
        if self._last is not None and now >= self._flushed + LINE_SECONDS:
            self._flushed = now
            self.flush()

    def flush(self) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        several = f"{self._first_generation} to {last.generation}"
        log.info(
            "generation %s: %d hosts, %s; joined: %s; left: %s",
            last.generation if last.generation == self._first_generation else several,
            len(last.hosts),
            last.state,
            _names(self._joined),
            _names(self._left),
        )
        self._joined, self._left = [], []


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - MAX_NAMES} more" if len(ordered) > MAX_NAMES else ""
    return ", ".join(ordered[:MAX_NAMES]) + more or "none"
