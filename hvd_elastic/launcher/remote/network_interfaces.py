"""The network interfaces of this machine, and which of them leads to a host."""

import functools
import socket

import psutil


@functools.lru_cache(maxsize=4096)
def is_own_address(number: str) -> bool:
    """Whether `number` is one of this machine's IPv4 addresses."""
    own = {a.address for group in psutil.net_if_addrs().values() for a in group if a.family == socket.AF_INET}
    return number.startswith("127.") or number in own


def interface_towards(number: str) -> tuple[str, str]:
    """Name and IPv4 address of the interface that leads to the IPv4 address `number`. Raises OSError if none does.

    Without `--network-interface` Horovod waits for two hosts and then probes them over ssh; on one host it hangs.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((number, 9))
        own = probe.getsockname()[0]
    own = "127.0.0.1" if own.startswith("127.") else own
    for name, group in psutil.net_if_addrs().items():
        if any(a.address == own for a in group):
            return name, own
    raise OSError(f"no interface leads to {number}")


def interface_address(name: str) -> str:
    """The IPv4 address of the interface `name`. Raises OSError if it has none."""
    for entry in psutil.net_if_addrs().get(name, ()):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise OSError(f"there is no network interface {name} with an IPv4 address")
