"""How a worker's command gets to its host: as a child of the launcher, or over ssh."""

import functools
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from hvd_elastic.launcher.core.hosts import Host
from hvd_elastic.mpijob.contract import ENV_RUN_DIR


class Shell(Protocol):
    """Starts commands on hosts. Every process is the leader of a session of its own on this machine."""

    def expect(self, hosts: tuple[Host, ...]) -> None:
        """These hosts are to be used: open what takes time ahead of need, drop what is not needed any more."""

    def is_open(self, host: Host) -> bool:
        """Whether a command would start there at once. What changes it calls the `changed` of the shell's maker."""

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start it, with pipes for its outputs. Raises OSError."""

    def close(self) -> None:
        """Drop everything; returns within a second."""


class LocalShell:
    """Commands are children of the launcher.

    With `folder` (`--local-hosts`) every host is a folder of it, named like its pod, and that is the
    HVD_ELASTIC_RUN_DIR of its processes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def expect(self, hosts: tuple[Host, ...]) -> None:
        """Nothing takes time here."""

    def is_open(self, host: Host) -> bool:
        """Always."""
        return True

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """See Shell."""
        variables = dict(environment)
        if self._folder is not None:
            variables[ENV_RUN_DIR] = os.fspath(self._folder / (host.pod or host.alias))
        return subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        """Nothing is open."""


class MixedShell:
    """As horovodrun: this machine's own addresses without ssh, all others over ssh."""

    def __init__(self, local: Shell, remote: Shell) -> None:
        self._local, self._remote = local, remote

    def expect(self, hosts: tuple[Host, ...]) -> None:
        """See Shell."""
        self._remote.expect(tuple(host for host in hosts if not is_this_machine(host.address)))

    def is_open(self, host: Host) -> bool:
        """See Shell."""
        return self._of(host).is_open(host)

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """See Shell."""
        return self._of(host).start(host, command, environment)

    def close(self) -> None:
        """See Shell."""
        self._remote.close()

    def _of(self, host: Host) -> Shell:
        return self._local if is_this_machine(host.address) else self._remote


@functools.lru_cache(maxsize=4096)
def is_this_machine(address: str) -> bool:
    """Whether it is one of this machine's IPv4 addresses, or a name of one."""
    try:
        number = socket.gethostbyname(address)
    except OSError:
        return False
    mine = {a.address for group in psutil.net_if_addrs().values() for a in group if a.family == socket.AF_INET}
    return number.startswith("127.") or number in mine


def interface_towards(address: str) -> tuple[str, str]:
    """Name and IPv4 address of the interface that leads to `address`. Raises OSError if none does.

    Without `--network-interface` Horovod waits for two hosts and then probes them over ssh; on one host it hangs.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        mine = probe.getsockname()[0]
    mine = "127.0.0.1" if mine.startswith("127.") else mine
    for name, group in psutil.net_if_addrs().items():
        if any(a.address == mine for a in group):
            return name, mine
    raise OSError(f"no interface leads to {address}")


def interface_address(name: str) -> str:
    """Its IPv4 address. Raises OSError."""
    for entry in psutil.net_if_addrs().get(name, ()):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise OSError(f"there is no network interface {name} with an IPv4 address")
