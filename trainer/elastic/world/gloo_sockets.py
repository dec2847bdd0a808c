"""The sockets that Gloo opened for one world, so that they can be shut down when the world ends.

A Horovod without the patch `process-set-connections` leaves Gloo's connections open in `hvd.shutdown()`. A survivor of
a death that waits on one learns nothing until the Gloo time-out (30 s); `shutdown(2)` on the leftover sockets tells it
at once. Gloo does not tell which they are. They appear during `hvd.init()`, and they are made as Gloo makes them; other
threads, which read data or send metrics, may open connections meanwhile.
"""

import contextlib
import fcntl
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hvd_elastic.system.background_threads import ErrorLog
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.elastic.world.peer_watch import probe_hosts

logger = logging.getLogger(__name__)

_FDS = Path("/proc/self/fd")


def open_sockets() -> dict[int, int]:
    """Map the process's sockets from inode to file descriptor."""
    descriptors = [int(entry.name) for entry in _FDS.iterdir()]
    return {inode: fd for fd in descriptors if (inode := _socket_inode(fd)) is not None}


def _socket_inode(fd: int) -> int | None:
    """None: it is closed, or no socket."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_ino if stat.S_ISSOCK(status.st_mode) else None


def is_as_gloo_makes_it(descriptor: int) -> bool:
    """Whether a socket is TCP, with SO_REUSEADDR and without close-on-exec (`gloo/transport/tcp/pair.cc`).

    Gloo sets SO_REUSEADDR on connecting sockets as well, which hardly any other program does. Python and most libraries
    set close-on-exec. torch's Gloo has one listening socket for all, and an error of that ends the process
    (`gloo/transport/tcp/listener.cc`): it is left alone.
    """
    try:
        if fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
            return False
        view = socket.socket(fileno=descriptor)
    except OSError:  # closed since it was found
        return False
    try:
        is_tcp = view.type == socket.SOCK_STREAM and view.family in {socket.AF_INET, socket.AF_INET6}
        is_gloos = is_tcp and view.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) != 0
        return is_gloos and not (IS_TORCH and view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
    finally:
        view.detach()


class WorldSockets:
    """The sockets of the newest world."""

    def __init__(self) -> None:
        self._sockets: dict[int, int] = {}
        """As `open_sockets`."""
        self._probed: dict[int, int] = {}
        """Of these, one to each other host."""
        self._before: frozenset[int] = frozenset()
        self._errors = ErrorLog(logger)
        os.register_at_fork(after_in_child=self._close)

    def note(self, init: Callable[[], None]) -> None:
        """Call `init` and remember the sockets that Gloo opens meanwhile.

        Only how fast a lost peer is noticed depends on them. So whatever goes wrong here (a process that has no
        descriptor left cannot list its own) is said, and `init` goes on.
        """
        self._sockets, self._probed = {}, {}
        is_listed = self._attempt(self._look_before)
        try:
            init()
        finally:
            if is_listed:
                self._attempt(self._look_after)

    def _look_before(self) -> None:
        self._before = frozenset(open_sockets())

    def _look_after(self) -> None:
        self._sockets = self._new()
        probed = set(probe_hosts(self._sockets.values()))
        self._probed = {inode: fd for inode, fd in self._sockets.items() if fd in probed}

    def _attempt(self, look: Callable[[], None]) -> bool:
        try:
            look()
        except Exception as error:  # noqa: BLE001 - whatever it is, a world can form without
            self._errors.say("a lost host may be noticed late, because this world's sockets are not known", error)
            return False
        return True

    def descriptors(self) -> list[int]:
        """Of the sockets that are still open."""
        return _still_open(self._sockets)

    def probed(self) -> list[int]:
        """Of one connection to each other host."""
        return _still_open(self._probed)

    def _new(self) -> dict[int, int]:
        """Gloo's sockets that have appeared since `note` began, as `open_sockets`."""
        sockets = open_sockets().items()
        return {inode: fd for inode, fd in sockets if inode not in self._before and is_as_gloo_makes_it(fd)}

    def _close(self) -> None:
        """Close them in a forked child (a loader process), which would keep a dead parent's connections open."""
        for fd in self.descriptors():
            os.close(fd)

    def cut(self) -> int:
        """Shut down the world's sockets that are still open. Return their number.

        The descriptors stay open: Gloo closes them, and if they were closed here a later file could get their number.
        """
        left: list[int] = []

        def shut_down() -> None:
            left.extend(self.descriptors())
            _shut_down(left)

        self._attempt(shut_down)
        self._sockets, self._probed = {}, {}
        return len(left)

    def cut_new(self) -> None:
        """Shut down Gloo's sockets that have appeared since `note` began. From another thread, this ends its `init`."""
        _shut_down(self._new().values())


def _still_open(sockets: Mapping[int, int]) -> list[int]:
    """A number that was closed may be another file's by now."""
    return [fd for inode, fd in sockets.items() if _socket_inode(fd) == inode]


def _shut_down(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as leftover:
            leftover.shutdown(socket.SHUT_RDWR)
