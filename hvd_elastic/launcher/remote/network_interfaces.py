"""The network interfaces of this machine, and which of them leads to a host."""

import functools
import socket
from typing import Final

import psutil

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
"""In the order in which Gloo takes an interface's addresses (`lookupAddrForIface` in its `transport/tcp/device.cc`)."""


@functools.lru_cache(maxsize=4096)
def is_own_address(number: str) -> bool:
    """Whether `number` is one of this machine's addresses."""
    own = {a.address for group in psutil.net_if_addrs().values() for a in group if a.family in _FAMILIES}
    return number.startswith("127.") or number in own


def interface_towards(number: str) -> tuple[str, str]:
    """Name of the interface that leads to the address `number`, and its own of that kind. Raises OSError if none does.

    Without `--network-interface` Horovod waits for two hosts and then probes them over ssh; on one host it hangs.
    """
    with socket.socket(socket.AF_INET6 if ":" in number else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((number, 9))
        own = probe.getsockname()[0]
    own = "127.0.0.1" if own.startswith("127.") else own
    for name, group in psutil.net_if_addrs().items():
        if any(a.address == own for a in group):
            return name, own
    raise OSError(f"no interface leads to {number}")


def interface_address(name: str) -> str:
    """The IPv4 address of the interface `name`, or else its IPv6 address. Raises OSError if it has none.

    Link-local addresses, which are written with their zone, lead to no other node.
    """
    found = [entry for entry in psutil.net_if_addrs().get(name, ()) if "%" not in entry.address]
    for family in _FAMILIES:
        for entry in found:
            if entry.family == family:
                return str(entry.address)
    raise OSError(f"there is no network interface {name} with an IP address")
