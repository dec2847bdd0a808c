"""A network of pods, as far as a job sees one: each pod a network namespace with an address of IPv6 and no other.

Its `lo` has 127.0.0.1, as that of every pod. The namespaces hang on a bridge in one more of them: nothing appears among
this machine's own interfaces, and all of it goes with the namespaces. Needs root.
"""

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PREFIX: Final = "fd5e:1a57"
_IN_POD: Final = 'mount --bind "$0" /etc/hosts && exec "$@"'
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPod:
    """One pod. Its interface is eth0."""

    netns: str
    address: str
    hosts_file: Path
    """Its /etc/hosts: a kubelet writes a pod's own name into it."""

    def within(self, command: Sequence[str]) -> list[str]:
        """The command that runs `command` in this pod."""
        return ["ip", "netns", "exec", self.netns, "sh", "-c", _IN_POD, str(self.hosts_file), *command]


class PodNetwork:
    """Makes pods, numbered from 1."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._pods = itertools.count(1)

    def pod(self) -> NetworkPod:
        number = next(self._pods)
        netns, address = f"{self._name}-{number}", f"{_PREFIX}::{number:x}"
        ip("netns", "add", netns)
        ip("link", "add", f"pod{number}", "netns", self._name, "type", "veth", "peer", "name", "eth0", "netns", netns)
        ip("-n", self._name, "link", "set", f"pod{number}", "master", "pods", "up")
        for interface in ("lo", "eth0"):
            ip("-n", netns, "link", "set", interface, "up")
        # Without the second in which the kernel asks whether somebody else has the address.
        ip("-n", netns, "address", "add", f"{address}/64", "dev", "eth0", "nodad")
        hosts_file = self._folder / netns
        hosts_file.write_text(f"127.0.0.1 localhost\n{address} {os.uname().nodename}\n")
        return NetworkPod(netns=netns, address=address, hosts_file=hosts_file)


@contextlib.contextmanager
def pod_network() -> Iterator[PodNetwork]:
    """Make a network; all of its pods are gone afterwards. End what runs in them before."""
    name = f"hvd{os.getpid()}-{next(_numbers)}"
    with tempfile.TemporaryDirectory() as folder:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "pods", "type", "bridge")
            ip("-n", name, "link", "set", "pods", "up")
            yield PodNetwork(Path(folder), name)
        finally:
            for file in Path("/run/netns").glob(f"{name}*"):
                ip("netns", "delete", file.name)


def ip(*arguments: str) -> None:
    """Call `ip`. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True)
