"""Writes the snapshot when it must be written, and knows which list the launcher has."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.snapshot import Host, Snapshot, SnapshotError, read_snapshot, uptime_seconds, write_snapshot
from hvd_elastic.mpijob.contract import SNAPSHOT_FILE, SnapshotState

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 2.0
"""How often an unchanged list is written again, so that its age stays true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChange:
    """How a list differs from the one that the launcher has. A host of which any field changed has left and joined."""

    joined: tuple[Host, ...]
    left: tuple[Host, ...]


class Publisher:
    """One folder's snapshot. `uptime` must be the clock of /proc/uptime; `wall` may jump."""

    def __init__(
        self,
        folder: Path,
        *,
        uptime: Callable[[], int] = uptime_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Continue from the snapshot that an earlier sidecar left in `folder`, if it can be read."""
        self._folder, self._uptime, self._wall = folder, uptime, wall
        self.last: Snapshot | None = None
        self.inherited = False
        """Whether `last` was written by an earlier sidecar."""
        try:
            self.last = read_snapshot(folder, max_age_seconds=math.inf, uptime=uptime)
            self.inherited = True
            read_snapshot(folder, uptime=uptime)
        except SnapshotError as error:
            log.debug("no usable snapshot: %s", error)
            # The host script waits for a missing snapshot, but fails at once on one that is too old.
            (folder / SNAPSHOT_FILE).unlink(missing_ok=True)
        self._offered = _by_uid(self.hosts)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The launcher's present list."""
        return self.last.hosts if self.last else ()

    @property
    def offered(self) -> Set[str]:
        """UIDs of the pods on it."""
        return self._offered.keys()

    @property
    def is_short(self) -> bool:
        """Whether that list says that workers are missing."""
        return self.last is not None and self.last.state is SnapshotState.SHORT

    def compare(
        self, eligible: EligibleHosts, changed_hosts: Mapping[str, Host | None] | None = None
    ) -> SnapshotChange:
        """How `eligible` differs from the launcher's list. The order within the change means nothing.

        `changed_hosts`: by UID, the only pods that may differ, if they are known.
        """
        if changed_hosts is None:
            changed_hosts = dict.fromkeys(self._offered) | _by_uid(eligible.hosts)
        pairs = [(self._offered.get(uid), host) for uid, host in changed_hosts.items()]
        return SnapshotChange(
            joined=tuple([new for old, new in pairs if new and new != old]),
            left=tuple([old for old, new in pairs if old and new != old]),
        )

    def publish(
        self,
        eligible: EligibleHosts,
        change: SnapshotChange,
        state: SnapshotState,
        contact_age_seconds: float,
        lines: bytes | None = None,
    ) -> bool:
        """Write the snapshot if it is new or due; return whether the list of hosts changed. Raises OSError.

        Args:
            eligible: the list.
            change: the result of `compare`.
            state: the snapshot's.
            contact_age_seconds: since the API server last confirmed the list.
            lines: the hosts' lines, if the caller keeps them joined.
        """
        hosts = eligible.hosts
        last = self.last
        uptime = self._uptime() - math.ceil(contact_age_seconds)
        same = last is not None and last.hosts == hosts
        known = last is not None and not self.inherited and same and last.state is state
        if known and last is not None and uptime < last.uptime_seconds + REFRESH_SECONDS:
            return False
        snapshot = Snapshot(
            hosts=hosts,
            generation=(last.generation if last else 0) + (not same),
            # Never backwards, which rounding could cause.
            uptime_seconds=max(uptime, last.uptime_seconds) if last and not self.inherited else uptime,
            unix_seconds=int(self._wall() - contact_age_seconds),
            state=state,
        )
        write_snapshot(self._folder, snapshot, lines)
        self.last, self.inherited = snapshot, False
        if not same:
            for host in change.left:
                del self._offered[host.uid]
            self._offered |= _by_uid(change.joined)
        return not same


def _by_uid(hosts: tuple[Host, ...]) -> dict[str, Host]:
    return {host.uid: host for host in hosts}
