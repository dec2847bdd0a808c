"""Which of the reported hosts may be used now."""

import math
from typing import Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist, CrashLoops
from hvd_elastic.launcher.core.hosts.host_lists import describe_hosts
from hvd_elastic.launcher.core.processes.process_table import ProcessTable

_LEAD_SECONDS: Final = 5.0
"""A pod may be reported this long before the death of the process that it replaces is known."""


class HostPool:
    """The hosts that the source reports, and those of them that are left out for a time."""

    def __init__(self, processes: ProcessTable, blacklist: Blacklist, holds: Blacklist) -> None:
        self._processes = processes
        self._blacklist = blacklist
        """Hosts on which a process died."""
        self._holds = holds
        """Hosts on which a process ended in order to be started again: they are used again after a moment."""
        self._crash_loops = CrashLoops()
        self._hosts: tuple[Host, ...] = ()
        self.unchanged_since = -math.inf
        self._failed: dict[str, float] = {}
        """By alias, when a process has failed on a host, since the last world was formed."""
        self._failed_pods: set[str] = set()
        """UIDs of those of them that are pods."""
        self._came: dict[str, float] = {}
        """When each of the reported pods, by UID, was reported for the first time."""

    def update(self, hosts: tuple[Host, ...], now: float) -> None:
        """Take the list that the source reports."""
        if hosts != self._hosts:
            self._hosts, self.unchanged_since = hosts, now
            self._came = {host.uid: self._came.get(host.uid, now) for host in hosts if host.pod and host.uid}

    def eligible(self, now: float) -> tuple[Host, ...]:
        """The hosts that may be used, in the source's order."""
        ending = self._processes.ending()
        return tuple(host for host in self._hosts if host.alias not in ending and not self._is_barred(host, now))

    def has_left(self, alias: str) -> bool:
        """Whether the source does not report the host any more."""
        return alias not in {host.alias for host in self._hosts}

    def blacklist(self, alias: str, now: float, *, failed: bool = True) -> None:
        """Leave a host out because a process died there, or (`failed` is false) was written off as silent."""
        self._blacklist.add(alias, now)
        for uid in self._pods_of(alias):
            self._crash_loops.failed(uid, now)
        if failed:
            self._note_failure(alias, now)

    def _note_failure(self, alias: str, now: float) -> None:
        self._failed.setdefault(alias, now)
        self._failed_pods |= self._pods_of(alias)

    def _pods_of(self, alias: str) -> set[str]:
        return {host.uid for host in self._hosts if host.alias == alias and host.pod} - {""}

    def failed(self) -> bool:
        """Whether a process has failed, since `forget_failures`, on a host that is still reported."""
        return any(host.alias in self._failed for host in self._hosts)

    def forget_failures(self) -> None:
        """A new world is formed: what failed before is over."""
        self._failed.clear()
        self._failed_pods.clear()

    def came_back(self) -> bool:
        """Whether every pod with a failure is reported again: it stayed, and its process was replaced.

        Such a pod is not reported for some seconds, until its next standby is warm.
        """
        return bool(self._failed_pods) and self._failed_pods <= self._came.keys()

    def may_come_back(self) -> bool:
        """Whether pods with a failure may still be reported again: none has come that could be in their place."""
        if not self._failed_pods:
            return False
        first = min(self._failed.values()) - _LEAD_SECONDS
        return not any(came >= first for uid, came in self._came.items() if uid not in self._failed_pods)

    def hold(self, alias: str, now: float, *, failed: bool = False) -> None:
        """Leave a host out for a moment; `failed`: its process ended without having been told to."""
        self._holds.add(alias, now)
        if failed:
            self._note_failure(alias, now)

    def blacklisted(self, now: float) -> tuple[str, ...]:
        """Aliases that are left out because a process died there."""
        looping = (host.alias for host in self._hosts if host.pod and self._crash_loops.blocks(host.uid, now))
        return tuple(dict.fromkeys((*self._blacklist.blocked(now), *looping)))

    def next_return(self, now: float) -> float:
        """When the next host may be used again; infinite if none will."""
        return min(part.next_return(now) for part in (self._blacklist, self._holds, self._crash_loops))

    def __str__(self) -> str:
        return describe_hosts(self._hosts)

    def _is_barred(self, host: Host, now: float) -> bool:
        looping = bool(host.pod) and self._crash_loops.blocks(host.uid, now)
        return looping or self._blacklist.blocks(host.alias, now) or self._holds.blocks(host.alias, now)
