"""An address that passes from one pod to another.

`horovodrun` identifies a host by its address. If one list replaced a pod by its successor at the same address, the
driver would see no change, would talk to a process that is gone, and would blacklist the address. So the successor is
withheld until the driver must have seen a list without the address.
"""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.discovery.snapshot import Host

QUARANTINE_SECONDS: Final = 3.0
"""The driver reads the list a little less than once a second, so it reads at least twice meanwhile."""


class AddressReuse:
    """Which pod each address belongs to, as the launcher sees it."""

    def __init__(self, offered: Iterable[Host] = (), quarantine_seconds: float = QUARANTINE_SECONDS) -> None:
        self._quarantine_seconds = quarantine_seconds
        self._owners = {host.address: host.uid for host in offered}
        """Address to the UID of the pod that is offered under it."""
        self._withdrawn: dict[str, tuple[str, float]] = {}
        """Address to its last pod's UID and when it left the list; the oldest first."""

    def quarantine(self, joining: Iterable[Host], now: float) -> frozenset[str]:
        """UIDs that must wait, because the launcher still takes their address for another pod's."""
        self._forget(now)
        return frozenset([host.uid for host in joining if self._belongs_to_another(host)])

    def published(self, joined: Iterable[Host], left: Iterable[Host], now: float) -> None:
        """Record that the launcher has been given a list with these changes."""
        for host in left:
            self._withdrawn.pop(host.address, None)
            self._withdrawn[host.address] = (self._owners.pop(host.address, host.uid), now)
        for host in joined:
            self._owners[host.address] = host.uid
            self._withdrawn.pop(host.address, None)

    def _forget(self, now: float) -> None:
        while self._withdrawn:
            address, (_, since) = next(iter(self._withdrawn.items()))
            if now - since < self._quarantine_seconds:
                return
            del self._withdrawn[address]

    def _belongs_to_another(self, host: Host) -> bool:
        uid = self._owners.get(host.address) or self._withdrawn.get(host.address, ("", 0.0))[0]
        return uid not in {"", host.uid}
