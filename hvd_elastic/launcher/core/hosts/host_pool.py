"""Which of the reported hosts may be used now."""

import math
from typing import Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist, CrashLoops
from hvd_elastic.launcher.core.hosts.host_lists import describe_hosts
from hvd_elastic.launcher.core.hosts.lost_pods import LostPods
from hvd_elastic.launcher.core.processes.process_table import ProcessTable

_LEAD_SECONDS: Final = 5.0
"""A pod may be reported this long before the death of the process that it replaces is known."""


class HostPool:
    """The hosts that the source reports, and those of them that are left out for a time."""

    def __init__(
        self, processes: ProcessTable, blacklist: Blacklist, holds: Blacklist, *, return_patience: float
    ) -> None:
        self._processes = processes
        self._blacklist = blacklist
        """Hosts on which a process died."""
        self._holds = holds
        """Hosts on which a process ended in order to be started again: they are used again after a moment."""
        self._crash_loops = CrashLoops()
        self._hosts: tuple[Host, ...] = ()
        self._by_alias: dict[str, Host] = {}
        self.unchanged_since = -math.inf
        self._failed: set[str] = set()
        """Aliases of hosts on which a process has failed since the last world was formed."""
        self.lost_pods = LostPods(patience=return_patience, lead=_LEAD_SECONDS)
        """Those of them that are pods."""

    def update(self, hosts: tuple[Host, ...], now: float) -> None:
        """Take the list that the source reports."""
        if hosts != self._hosts:
            self._hosts, self.unchanged_since = hosts, now
            self._by_alias = {host.alias: host for host in hosts}
            uids = {host.uid for host in hosts if host.pod and host.uid}
            self.lost_pods.set_listed(uids, now)
            if uids:  # a host that is no pod keeps its name, and may come back with it
                for names in (self._blacklist, self._holds):
                    names.forget_gone(self._by_alias, now)
                self._crash_loops.forget_gone(uids, now)

    def eligible(self, now: float) -> tuple[Host, ...]:
        """The hosts that may be used, in the source's order."""
        ending = self._processes.ending()
        return tuple(host for host in self._hosts if host.alias not in ending and not self._is_barred(host, now))

    def has_left(self, alias: str) -> bool:
        """Whether the source does not report the host any more."""
        return alias not in self._by_alias

    def blacklist(self, alias: str, now: float, *, failed: bool = True, for_good: bool = False) -> None:
        """Leave a host out because a process died there, or (`failed` is false) was written off as silent.

        `for_good`: its pod computes wrongly, and is not used again.
        """
        self._blacklist.add(alias, now, for_good=for_good)
        if uid := self._pod_of(alias):
            self._crash_loops.failed(uid, now, for_good=for_good)
        if failed:
            self._note_failure(alias, now)

    def _note_failure(self, alias: str, now: float) -> None:
        self._failed.add(alias)
        if uid := self._pod_of(alias):
            self.lost_pods.lose(uid, now)

    def _pod_of(self, alias: str) -> str:
        """UID of the pod; empty for what is not reported, or is none."""
        host = self._by_alias.get(alias)
        return host.uid if host and host.pod else ""

    def failed(self) -> bool:
        """Whether a process has failed, since `forget_failures`, on a host that is still reported."""
        return any(host.alias in self._failed for host in self._hosts)

    def forget_failures(self) -> None:
        """A new world is formed: what failed before is over."""
        self._failed.clear()
        self.lost_pods.forget()

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
