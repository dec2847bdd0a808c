"""The numbers of hosts that are given by name. DNS may take minutes, so nobody waits for it here."""

import functools
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from hvd_elastic.launcher.remote.network_interfaces import is_own_address
from hvd_elastic.system.background_threads import start_thread

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""Between two look-ups of a name that DNS does not know, as long as it is expected."""


def look_up(name: str) -> str:
    """Its first IPv4 address, or else its first IPv6 address. Raises OSError if there is none."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


class HostAddresses:
    """What is known of each expected host. An address is `HOST` or `USER@HOST`, and HOST is a number or a name."""

    def __init__(self, changed: Callable[[], None], *, look_up: Callable[[str], str] = look_up) -> None:
        """`changed` is called, from any thread, when a look-up has ended."""
        self._changed, self._look_up = changed, look_up
        self._found: dict[str, str] = {}
        """By name, its number; empty where DNS knows none: it may be a name of ssh's own configuration."""
        self._forgotten: dict[str, threading.Event] = {}
        """By name, what ends its look-ups."""

    def expect(self, addresses: Iterable[str]) -> None:
        """Begin to look up those that are new, and forget all others. Returns at once."""
        names = {host_name(address) for address in addresses}
        for name in self._forgotten.keys() - names:
            self._forgotten.pop(name).set()
            self._found.pop(name, None)
        for name in names - self._forgotten.keys():
            self._forgotten[name] = forgotten = threading.Event()
            if _is_number(name):
                self._found[name] = name
            else:
                ask = functools.partial(self._ask, name, forgotten)
                start_thread(f"dns {name}", ask, log=logger, stopped=forgotten)

    def is_known(self, address: str) -> bool:
        """Whether its first look-up has ended."""
        return host_name(address) in self._found

    def is_local(self, address: str) -> bool:
        """Whether it is this machine, and this user."""
        number = self._found.get(address)
        return bool(number) and is_own_address(str(number))

    def number(self, address: str) -> str:
        """Its IP address. Raises OSError if DNS knows none, or has not answered."""
        found = self._found.get(host_name(address))
        if not found:
            raise OSError(f"DNS does not know {host_name(address)}")
        return found

    def _ask(self, name: str, forgotten: threading.Event) -> None:
        while not forgotten.is_set():
            found = ""
            try:
                found = self._look_up(name)
            except (OSError, UnicodeError) as error:
                logger.debug("no address of %s: %s", name, error)
            if not forgotten.is_set() and self._found.get(name) != found:
                self._found[name] = found
                self._changed()
            if found:
                return
            forgotten.wait(RETRY_SECONDS)


def host_name(address: str) -> str:
    """`HOST` of `USER@HOST`."""
    return address.rpartition("@")[2]


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
