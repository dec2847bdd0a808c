"""An address that passes from one pod to another.

To `horovodrun` a host is its address: were the list to name the successor in the same breath, the driver would see no
change, send to a process that is gone, and put the address on its blacklist. So the address is withheld until the
driver must have seen a list without it.
"""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.discovery.snapshot import Host

HOLD_SECONDS: Final = 3.0
"""The driver reads the list a little less than once a second: two readings for certain."""


class AddressReuse:
    """Which pod each address stands for in the launcher's eyes."""

    def __init__(self, offered: Iterable[Host] = (), hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold = hold_seconds
        self._holders = {host.address: host.uid for host in offered}
        self._withdrawn: dict[str, tuple[str, float]] = {}
        """Address to the pod that had it, and when it was taken off the list; in the order of that."""

    def blocked(self, joining: Iterable[Host], now: float) -> frozenset[str]:
        """UIDs that must wait, because the launcher still takes their address for another pod."""
        self._forget(now)
        return frozenset([host.uid for host in joining if self._is_anothers(host)])

    def published(self, joined: Iterable[Host], left: Iterable[Host], now: float) -> None:
        """The launcher sees these come and go."""
        for host in left:
            self._withdrawn.pop(host.address, None)
            self._withdrawn[host.address] = (self._holders.pop(host.address, host.uid), now)
        for host in joined:
            self._holders[host.address] = host.uid
            self._withdrawn.pop(host.address, None)

    def _forget(self, now: float) -> None:
        while self._withdrawn:
            address, (_, since) = next(iter(self._withdrawn.items()))
            if now - since < self._hold:
                return
            del self._withdrawn[address]

    def _is_anothers(self, host: Host) -> bool:
        uid = self._holders.get(host.address) or self._withdrawn.get(host.address, ("", 0.0))[0]
        return uid not in {"", host.uid}
