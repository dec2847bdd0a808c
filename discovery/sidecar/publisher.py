"""Writes the snapshot when it must be written, and knows what the launcher has been told."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.snapshot import Host, Snapshot, SnapshotError, read_snapshot, uptime_seconds, write_snapshot
from hvd_elastic.mpijob.contract import SNAPSHOT_FILE, SnapshotState

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 2.0
"""How often a list that stays the same is written anew, so that its age tells the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChange:
    """How a list differs from the one that the launcher has. A host that is another now has left and joined."""

    joined: tuple[Host, ...]
    left: tuple[Host, ...]


class Publisher:
    """One folder's snapshot. Takes the clock of /proc/uptime and the wall clock, which may jump."""

    def __init__(
        self,
        folder: Path,
        *,
        uptime: Callable[[], int] = uptime_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Go on from the snapshot that an earlier sidecar left in `folder`, if it can be read."""
        self._folder, self._uptime, self._wall = folder, uptime, wall
        self.last: Snapshot | None = None
        self.inherited = False
        """Whether `last` is an earlier sidecar's."""
        try:
            self.last = read_snapshot(folder, max_age_seconds=math.inf, uptime=uptime)
            self.inherited = True
            read_snapshot(folder, uptime=uptime)
        except SnapshotError as error:
            log.debug("no snapshot that can be used: %s", error)
            # The script waits for a snapshot that is not there, and fails at once on one that is too old.
            (folder / SNAPSHOT_FILE).unlink(missing_ok=True)

        self._told = _by_uid(self.hosts)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """What the launcher was told last."""
        return self.last.hosts if self.last else ()

    @property
    def is_short(self) -> bool:
        """Whether it was told that workers are missing."""
        return self.last is not None and self.last.state is SnapshotState.SHORT

    def compare(self, answer: EligibleHosts) -> SnapshotChange:
        """How it differs from what the launcher was told last; in no order that means anything."""
        news = dict.fromkeys(self._told) | _by_uid(answer.hosts) if answer.news is None else answer.news
        moved = [(self._told.get(uid), host) for uid, host in news.items() if self._told.get(uid) != host]
        return SnapshotChange(
            joined=tuple([new for _, new in moved if new]),
            left=tuple([old for old, _ in moved if old]),
        )

    def publish(
        self, answer: EligibleHosts, change: SnapshotChange, state: SnapshotState, word_age_seconds: float
    ) -> bool:
        """Write what is new; whether the launcher's list changed. Raises OSError.

        `change`: as `compare` says. `word_age_seconds`: since the API server's last word.
        """
        hosts = answer.hosts
        last = self.last
        uptime = self._uptime() - math.ceil(word_age_seconds)
        same = last is not None and last.hosts == hosts
        told = last is not None and not self.inherited and same and last.state is state
        if told and last is not None and uptime < last.uptime_seconds + REFRESH_SECONDS:
            return False
        snapshot = Snapshot(
            hosts=hosts,
            generation=(last.generation if last else 0) + (not same),
            # Never back: a word that was given cannot be taken back by rounding.
            uptime_seconds=max(uptime, last.uptime_seconds) if last and not self.inherited else uptime,
            unix_seconds=int(self._wall() - word_age_seconds),
            state=state,
        )
        write_snapshot(self._folder, snapshot, answer.lines)
        self.last, self.inherited = snapshot, False
        if not same:
            for host in change.left:
                del self._told[host.uid]
            self._told |= _by_uid(change.joined)
        return not same


def _by_uid(hosts: tuple[Host, ...]) -> dict[str, Host]:
    return {host.uid: host for host in hosts}
