"""Checkpoints on a shared file system: NFS, EFS, Lustre, a persistent volume, or a plain folder.

Only what such file systems promise is used. `link(2)` creates a name atomically or fails, also over NFS, where an
answer may be lost: then the content tells whose it is. `rename(2)` makes a whole file visible. fsync of the file and of
its folder make both last; a failed fsync is never tried again on the same file: the kernel may have dropped the pages.
A register cannot be compared and swapped in place, so it is a folder of numbered generations: the next one can be
created by one writer only. Listings may be stale for a minute on NFS (acdirmax); the creation asks the server.
"""

import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hvd_elastic.trainer.checkpoint.errors import CorruptError, StoreError, StoreFullError
from hvd_elastic.trainer.checkpoint.stores.retry import Backoff, PassingError, persist
from hvd_elastic.trainer.checkpoint.stores.store import StoredObject

GENERATIONS: Final = 64
"""Generations of a register that are kept. A writer would have to miss so many to create an old number anew."""

PARTIAL: Final = ".partial"
_PASSING: Final = frozenset({errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT, errno.EBUSY, errno.EREMOTEIO})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn OSError into the errors of a store. FileNotFoundError and FileExistsError mean something to the caller."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFullError(f"{path}: {error.strerror}: free space, raise the quota or lower `keep`") from error
        if error.errno in _PASSING:
            raise PassingError(f"{path}: {error.strerror}") from error
        raise StoreError(f"{path}: {error.strerror}") from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder last. Some network file systems refuse, and do so by themselves."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(handle)


class FileUpload:
    """A large file being written beside its final name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(path.name + PARTIAL)
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        """Write one part."""
        rest = memoryview(data)
        with translated(self._path):
            while rest:
                written = os.pwrite(self._handle, rest, offset)
                rest, offset = rest[written:], offset + written

    def finish(self) -> None:
        """Make it last, then visible. The page cache is left to the data loader."""
        with translated(self._path):
            os.fsync(self._handle)
            os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
            self._close()
            self._partial.rename(self._path)
            sync_folder(self._path.parent)

    def abort(self) -> None:
        """Delete what there is."""
        with suppress(OSError):
            self._close()
        with suppress(OSError):
            self._partial.unlink()

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


class FileStore:
    """A folder."""

    def __init__(
        self,
        root: Path,
        *,
        part_bytes: int,
        threads: int,
        sleep: Callable[[float], object],
        backoff: Backoff = Backoff(attempts=5),  # noqa: B008 - a frozen value
    ) -> None:
        self.root = root
        self.part_bytes = part_bytes
        self.threads = threads
        self._sleep = sleep
        self._backoff = backoff

    def read(self, key: str) -> StoredObject | None:
        """Return a small file, or the newest generation of a register."""
        return persist(lambda: self._read(self.root / key), backoff=self._backoff, sleep=self._sleep)

    def _read(self, path: Path) -> StoredObject | None:
        with translated(path):
            try:
                if path.is_dir():
                    generation = max(self._generations(path), default=0)
                    # A listing may be stale on NFS; a name asks the server.
                    while (path / f"{generation + 1:08d}").exists():
                        generation += 1
                    path /= f"{generation:08d}"
                    return StoredObject(data=path.read_bytes(), version=str(generation)) if generation else None
                return StoredObject(data=path.read_bytes(), version="")
            except FileNotFoundError:
                return None

    def create(self, key: str, data: bytes) -> bool:
        """Write a small file unless it is there."""
        return persist(lambda: self._create(self.root / key, data), backoff=self._backoff, sleep=self._sleep)

    def _create(self, path: Path, data: bytes) -> bool:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")
        with translated(path):
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
            sync_folder(path.parent)
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
        with translated(folder):
            generations = self._generations(folder)
            if max(generations) > following:
                return None
            for old in generations:
                if old <= following - GENERATIONS:
                    (folder / f"{old:08d}").unlink(missing_ok=True)
        return str(following)

    def vouch(self, key: str, data: bytes) -> None:
        """A file system either links exclusively or says that it cannot, when `key` is created."""

    def _generations(self, folder: Path) -> list[int]:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208 - names only

    def keys(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder."""
        return tuple(f"{folder}/{name}" for name in self._names(folder) if not name.endswith(PARTIAL))

    def _names(self, folder: str) -> list[str]:
        def names() -> list[str]:
            with translated(self.root / folder):
                try:
                    return os.listdir(self.root / folder)  # noqa: PTH208 - names only
                except FileNotFoundError:
                    return []

        return persist(names, backoff=self._backoff, sleep=self._sleep)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, in the order given."""
        for key in keys:
            with translated(self.root / key):
                (self.root / key).unlink(missing_ok=True)

    def begin(self, key: str, size_bytes: int) -> FileUpload:
        """Start a large file."""
        return FileUpload(self.root / key)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill `target` from a file."""
        persist(lambda: self._fill(self.root / key, offset, target), backoff=self._backoff, sleep=self._sleep)

    def _fill(self, path: Path, offset: int, target: memoryview) -> None:
        with translated(path):
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                raise CorruptError(f"{path} is missing") from None
            try:
                while target:
                    read = os.preadv(handle, [target], offset)
                    if not read:
                        raise CorruptError(f"{path} ends at {offset}, {len(target)} bytes early")
                    target, offset = target[read:], offset + read
            finally:
                os.close(handle)

    def sweep(self, folder: str, doomed: Callable[[str], bool]) -> None:
        """Delete unfinished files."""
        names = (name for name in self._names(folder) if name.endswith(PARTIAL))
        self.delete(f"{folder}/{name}" for name in names if doomed(f"{folder}/{name}"))

    def close(self) -> None:
        """Nothing is held."""
