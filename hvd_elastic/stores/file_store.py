"""Checkpoints on a shared file system: NFS, EFS, Lustre, a persistent volume, or a plain folder.

Only what such file systems guarantee is used. `link(2)` creates a name atomically or fails, also over NFS; if the
answer was lost there, the content shows which writer created it. `rename(2)` makes a complete file visible. fsync of
the file and of its folder makes both durable. A failed fsync is never retried on the same file, because the kernel may
have dropped the pages. A register cannot be compared and swapped in place, so it is a folder of numbered generations:
only one writer can create the next one. On NFS, listings may be stale for a minute (acdirmax); a creation asks the
server.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from hvd_elastic.stores.errors import CorruptError, StoreError, StoreFullError
from hvd_elastic.stores.retry import TransientError, call_with_retries
from hvd_elastic.stores.store import SMALL_BYTES, StoredObject

T = TypeVar("T")

GENERATIONS: Final = 64
"""Generations of a register that are kept. Only a writer that missed this many could create an old number again."""

PARTIAL: Final = ".partial"
_TRANSIENT: Final = frozenset({errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT, errno.EBUSY, errno.EREMOTEIO})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate OSError into StoreError, except FileNotFoundError and FileExistsError, which the caller handles."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFullError(f"{path}: {error.strerror}: free space, raise the quota or lower `keep`") from error
        if error.errno in _TRANSIENT:
            raise TransientError(f"{path}: {error.strerror}") from error
        raise StoreError(f"{path}: {error.strerror}") from error


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable. Some network file systems refuse, because they do so by themselves."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(handle)


@contextmanager
def _open_to_read(path: Path) -> Iterator[int]:
    """Yield a descriptor. Others may write to the folder: to open a FIFO would wait for its writer, for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise CorruptError(f"{path} is not a regular file")
        yield handle
    finally:
        os.close(handle)


def _read_small(path: Path) -> bytes:
    with _open_to_read(path) as handle, open(handle, "rb", closefd=False) as file:
        data = file.read(SMALL_BYTES + 1)
    if len(data) > SMALL_BYTES:
        raise CorruptError(f"{path} is longer than {SMALL_BYTES} bytes")
    return data


class FileUpload:
    """A large file that is being written beside its final name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(path.name + PARTIAL)
        with translate_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        """Write one part."""
        rest = memoryview(data)
        with translate_errors(self._path):
            while rest:
                written = os.pwrite(self._handle, rest, offset)
                rest, offset = rest[written:], offset + written

    def finish(self) -> None:
        """Make the file durable, then visible, and free its page cache for the data loader."""
        with translate_errors(self._path):
            os.fsync(self._handle)
            if hasattr(os, "posix_fadvise"):  # macOS has none
                os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
            self._close()
            self._partial.rename(self._path)
            fsync_folder(self._path.parent)

    def abort(self) -> None:
        """Delete the unfinished file."""
        with suppress(OSError):
            self._close()
        with suppress(OSError):
            self._partial.unlink()

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


class FileStore:
    """A folder on a file system."""

    def __init__(
        self,
        root: Path,
        *,
        part_bytes: int,
        threads: int,
        sleep: Callable[[float], object],
        attempts: int = 5,
    ) -> None:
        self.root = root
        self.part_bytes = part_bytes
        self.threads = threads
        self._sleep = sleep
        self._attempts = attempts

    def _ask(self, action: Callable[[], T]) -> T:
        return call_with_retries(action, attempts=self._attempts, sleep=self._sleep)

    def read(self, key: str) -> StoredObject | None:
        """Return a small file, or the newest generation of a register."""
        return self._ask(lambda: self._read(self.root / key))

    def _read(self, path: Path) -> StoredObject | None:
        with translate_errors(path):
            try:
                if path.is_dir():
                    generation = max(self._generations(path), default=0)
                    # A listing may be stale on NFS; a lookup by name asks the server.
                    while (path / f"{generation + 1:08d}").exists():
                        generation += 1
                    path /= f"{generation:08d}"
                    return StoredObject(data=_read_small(path), version=str(generation)) if generation else None
                return StoredObject(data=_read_small(path), version="")
            except FileNotFoundError:
                return None

    def size_of(self, key: str) -> int | None:
        return self._ask(lambda: self._size(self.root / key))

    def _size(self, path: Path) -> int | None:
        with translate_errors(path):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                return None

    def create(self, key: str, data: bytes) -> bool:
        """Write a small file unless it exists."""
        return self._ask(lambda: self._create(self.root / key, data))

    def _create(self, path: Path, data: bytes) -> bool:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")
        with translate_errors(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with partial.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self._link(partial, path)
            except FileExistsError:
                found = self._read(path)
                return found is not None and found.data == data
            finally:
                with suppress(OSError):
                    partial.unlink()
            fsync_folder(path.parent)
            return True

    def _link(self, partial: Path, path: Path) -> None:
        try:
            os.link(partial, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StoreError(
                f"{path.parent}: this file system has no hard links, so two writers cannot be kept apart: "
                "use NFS, EFS, Lustre, a block volume or s3://"
            ) from error

    def replace(self, key: str, data: bytes, *, version: str | None) -> str | None:
        """Create the next generation of a register."""
        folder, following = self.root / key, int(version or "0") + 1
        if not self.create(f"{key}/{following:08d}", data):
            return None
        with translate_errors(folder):
            generations = self._generations(folder)
            if max(generations) > following:
                return None
            for old in generations:
                if old <= following - GENERATIONS:
                    (folder / f"{old:08d}").unlink(missing_ok=True)
        return str(following)

    def check_conditional_writes(self, key: str, data: bytes) -> None:
        """Does nothing: `create` has already shown that the file system has exclusive links."""

    def _generations(self, folder: Path) -> list[int]:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208 - names only

    def keys(self, folder: str) -> tuple[str, ...]:
        return tuple(f"{folder}/{name}" for name in self._names(folder) if not name.endswith(PARTIAL))

    def _names(self, folder: str) -> list[str]:
        def names() -> list[str]:
            with translate_errors(self.root / folder):
                try:
                    return os.listdir(self.root / folder)  # noqa: PTH208 - names only
                except FileNotFoundError:
                    return []

        return self._ask(names)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, in the order given."""
        for key in keys:
            with translate_errors(self.root / key):
                (self.root / key).unlink(missing_ok=True)

    def start_upload(self, key: str, size_bytes: int) -> FileUpload:
        """Start to write a large file."""
        return FileUpload(self.root / key)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        self._ask(lambda: self._fill(self.root / key, offset, target))

    def _fill(self, path: Path, offset: int, target: memoryview) -> None:
        with translate_errors(path):
            try:
                with _open_to_read(path) as handle:
                    while target:
                        read = os.preadv(handle, [target], offset)
                        if not read:
                            raise CorruptError(f"{path} ends at {offset}, {len(target)} bytes early")
                        target, offset = target[read:], offset + read
            except FileNotFoundError:
                raise CorruptError(f"{path} is missing") from None

    def free_bytes(self) -> int | None:
        """Return the free space of the file system."""
        try:
            found = os.statvfs(self.root)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize if found.f_blocks else None

    def discard_uploads(self, folder: str, should_discard: Callable[[str], bool]) -> None:
        """Delete unfinished files."""
        names = (name for name in self._names(folder) if name.endswith(PARTIAL))
        self.delete(f"{folder}/{name}" for name in names if should_discard(f"{folder}/{name}"))

    def close(self) -> None:
        """Does nothing: no file stays open."""
