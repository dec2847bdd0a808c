"""Waits for files of one folder to be replaced, through inotify: within milliseconds, without polling every second."""

import ctypes
import errno
import os
import select
import struct
from pathlib import Path
from types import TracebackType
from typing import Final

_IN_CLOSE_WRITE: Final = 0x00000008
_IN_MOVED_TO: Final = 0x00000080
_IN_NONBLOCK: Final = os.O_NONBLOCK
_IN_CLOEXEC: Final = os.O_CLOEXEC
_EVENT: Final = struct.Struct("iIII")


class FileWatch:
    """Waits for any of `paths` to be written or renamed into place. They are in one folder, which must exist.

    Where inotify is not available (its instances are limited per user, 128 by default), `wait` looks at the file every
    POLL_SECONDS instead.
    """

    POLL_SECONDS: Final = 0.02

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._names = {os.fsencode(path.name) for path in paths}
        self._fd = _inotify(paths[0].parent)
        self._seen = self._identities()

    def __enter__(self) -> "FileWatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether one was replaced. False after the time-out, or if another file in the folder has changed."""
        if self._fd is None:
            return self._poll(timeout_seconds)
        ready, _, _ = select.select([self._fd], [], [], timeout_seconds)
        return bool(ready) and self._names_one_of_ours(os.read(self._fd, 65536))

    def _names_one_of_ours(self, data: bytes) -> bool:
        offset = 0
        names = set()
        while offset < len(data):
            *_, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            names.add(data[offset : offset + length].rstrip(b"\0"))
            offset += length
        return not self._names.isdisjoint(names)

    def _poll(self, timeout_seconds: float) -> bool:
        select.select([], [], [], min(timeout_seconds, self.POLL_SECONDS))
        before, self._seen = self._seen, self._identities()
        return before != self._seen

    def _identities(self) -> list[tuple[int, int] | None]:
        return [_identity(path) for path in self._paths]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _inotify(folder: Path) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(folder), _IN_CLOSE_WRITE | _IN_MOVED_TO) < 0:
        code = ctypes.get_errno()
        os.close(fd)
        if code == errno.ENOENT:
            raise FileNotFoundError(code, os.strerror(code), os.fspath(folder))
        return None
    return fd
