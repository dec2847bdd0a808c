"""Which of the reported hosts may be used now."""

import math

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.hosts.host_lists import describe_hosts
from hvd_elastic.launcher.core.processes.process_table import ProcessTable


class HostPool:
    """The hosts that the source reports, and those of them that are left out for a time."""

    def __init__(self, processes: ProcessTable, blacklist: Blacklist, holds: Blacklist) -> None:
        self._processes = processes
        self._blacklist = blacklist
        """Hosts on which a process died."""
        self._holds = holds
        """Hosts on which a process ended in order to be started again: they are used again after a moment."""
        self._hosts: tuple[Host, ...] = ()
        self.unchanged_since = -math.inf
        self._failed: set[str] = set()
        """Aliases of hosts on which a process has failed since the last world was formed."""

    def update(self, hosts: tuple[Host, ...], now: float) -> None:
        """Take the list that the source reports."""
        if hosts != self._hosts:
            self._hosts, self.unchanged_since = hosts, now

    def eligible(self, now: float) -> tuple[Host, ...]:
        """The hosts that may be used, in the source's order."""
        ending = self._processes.ending()
        return tuple(host for host in self._hosts if host.alias not in ending and not self._is_barred(host.alias, now))

    def has_left(self, alias: str) -> bool:
        """Whether the source does not report the host any more."""
        return alias not in {host.alias for host in self._hosts}

    def blacklist(self, alias: str, now: float) -> None:
        """Leave a host out because a process died there."""
        self._blacklist.add(alias, now)
        self._failed.add(alias)

    def failed(self) -> bool:
        """Whether a process has failed, since `forget_failures`, on a host that is still reported."""
        return any(host.alias in self._failed for host in self._hosts)

    def forget_failures(self) -> None:
        """A new world is formed: what failed before is over."""
        self._failed.clear()

    def hold(self, alias: str, now: float, *, failed: bool = False) -> None:
        """Leave a host out for a moment; `failed`: its process ended without having been told to."""
        self._holds.add(alias, now)
        if failed:
            self._failed.add(alias)

    def blacklisted(self, now: float) -> tuple[str, ...]:
        """Aliases that are left out because a process died there."""
        return self._blacklist.blocked(now)

    def next_return(self, now: float) -> float:
        """When the next host may be used again; infinite if none will."""
        return min(self._blacklist.next_return(now), self._holds.next_return(now))

    def __str__(self) -> str:
        return describe_hosts(self._hosts)

    def _is_barred(self, alias: str, now: float) -> bool:
        return self._blacklist.blocks(alias, now) or self._holds.blocks(alias, now)
