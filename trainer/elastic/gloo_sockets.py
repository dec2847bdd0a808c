"""The sockets that Gloo opened for one world, so that they can be closed when the world ends.

After the death of a peer `hvd.shutdown()` leaves Gloo's connections to the surviving peers open. A survivor that
waits on such a connection learns nothing until the Gloo time-out (30 s). `shutdown(2)` on the leftovers tells it at
once. They are known by their inode: what appears while `hvd.init()` runs is Gloo's.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

_FDS = Path("/proc/self/fd")


def open_sockets() -> dict[str, int]:
    """The process's sockets: `socket:[INODE]` to file descriptor."""
    found: dict[str, int] = {}
    for entry in _FDS.iterdir():
        with contextlib.suppress(OSError):  # closed between the listing and the look
            target = os.readlink(entry)  # noqa: PTH115  a Path would take `socket:[1]` apart
            if target.startswith("socket:"):
                found[target] = int(entry.name)
    return found


class WorldSockets:
    """The sockets of the world that was formed last."""

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

    def _close(self) -> None:
        """In a forked child (a loader's process): it would keep a dead parent's connections open while it lives."""
        if self._inodes:
            for inode, fd in open_sockets().items():
                if inode in self._inodes:
                    os.close(fd)

    def cut(self) -> int:
        """Shut down those of the world's sockets that are still open; how many there were.

        The descriptors stay open: they are Gloo's to close, and closing them here would let a later file take their
        number.
        """
        left = [fd for inode, fd in open_sockets().items() if inode in self._inodes]
        _shut_down(left)
        self._inodes = frozenset()
        return len(left)

    def cut_new(self) -> None:
        """Shut down those that have appeared since `note` was called, from another thread: it ends `init`."""
        _shut_down([fd for inode, fd in open_sockets().items() if inode not in self._before])


def _shut_down(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as leftover:
            leftover.shutdown(socket.SHUT_RDWR)
