"""The sockets that Gloo opened for one world, so that they can be shut down when the world ends.

After the death of a peer `hvd.shutdown()` leaves Gloo's connections to the surviving peers open. A survivor that waits
on such a connection learns nothing until the Gloo time-out (30 s); `shutdown(2)` on the leftover sockets tells it at
once. They are identified by inode: the sockets that appear during `hvd.init()` are Gloo's.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from hvd_elastic.trainer.elastic.peer_watch import probe_when_idle

_FDS = Path("/proc/self/fd")


def open_sockets() -> dict[str, int]:
    """Map the process's sockets from `socket:[INODE]` to file descriptor."""
    found: dict[str, int] = {}
    for entry in _FDS.iterdir():
        with contextlib.suppress(OSError):  # closed since the listing
            target = os.readlink(entry)  # noqa: PTH115  `socket:[1]` is not a path
            if target.startswith("socket:"):
                found[target] = int(entry.name)
    return found


class WorldSockets:
    """The sockets of the newest world."""

    def __init__(self) -> None:
        self._inodes: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()
        os.register_at_fork(after_in_child=self._close)

    def note(self, init: Callable[[], None]) -> None:
        """Call `init` and remember the sockets that appear meanwhile."""
        self._before = frozenset(open_sockets())
        try:
            init()
        finally:
            self._inodes = frozenset(open_sockets().keys() - self._before)
        for fd in self.descriptors():
            probe_when_idle(fd)

    def descriptors(self) -> list[int]:
        """The world's sockets that are open now."""
        return [fd for inode, fd in open_sockets().items() if inode in self._inodes]

    def _close(self) -> None:
        """Close them in a forked child (a loader process), which would keep a dead parent's connections open."""
        if self._inodes:
            for inode, fd in open_sockets().items():
                if inode in self._inodes:
                    os.close(fd)

    def cut(self) -> int:
        """Shut down the world's sockets that are still open. Return their number.

        The descriptors stay open: Gloo closes them, and if they were closed here a later file could get their number.
        """
        left = self.descriptors()
        _shut_down(left)
        self._inodes = frozenset()
        return len(left)

    def cut_new(self) -> None:
        """Shut down the sockets that have appeared since `note` began. From another thread, this ends its `init`."""
        _shut_down([fd for inode, fd in open_sockets().items() if inode not in self._before])


def _shut_down(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as leftover:
            leftover.shutdown(socket.SHUT_RDWR)
