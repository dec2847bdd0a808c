"""What a checkpoint needs of the place it is kept in.

Two places implement it: an object store (`s3.py`) and a shared file system (`files.py`). Keys are relative to the
prefix and use `/`. Small objects are written whole; large ones in parts, by several threads at once. Every method
waits out passing failures by itself and raises StoreError when they last.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """A small object as it was read."""

    data: bytes
    version: str
    """Changes with each `replace`; meaningful to the same store only."""


class Upload(Protocol):
    """A large object being written. Nobody sees it before `finish` returns."""

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        """Write part `number` (from 1), which starts at `offset`. Called by several threads, each part once."""

    def finish(self) -> None:
        """Make the object visible, whole and on stable storage."""

    def abort(self) -> None:
        """Give the space back. Raises nothing: what is left is swept later."""


class Store(Protocol):
    """A prefix in an object store, or a folder."""

    part_bytes: int
    """Size of a part, all but the last."""
    threads: int
    """Parts moved at once."""

    def read(self, key: str) -> StoredObject | None:
        """Return a small object; None if there is none."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object unless the key exists. False: another's stands there.

        `data` must be unique to the caller (a nonce in it): an object with the very same bytes is the caller's own,
        written by an attempt whose answer was lost.
        """

    def replace(self, key: str, data: bytes, *, version: str | None) -> str | None:
        """Write a small object if it still is at `version` (None: if there is none). Returns the new version.

        None: another was faster. As with `create`, `data` must be unique to the caller.
        """

    def vouch(self, key: str, data: bytes) -> None:
        """Raise StoreError unless conditional writes are honoured. Tried on `key`, which holds `data`, harmlessly."""

    def keys(self, folder: str) -> tuple[str, ...]:
        """Return all keys `folder/...`, in no order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""

    def begin(self, key: str, size_bytes: int) -> Upload:
        """Start a large object."""

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on. Raises CorruptError if the object is missing or too short."""

    def sweep(self, folder: str, doomed: Callable[[str], bool]) -> None:
        """Discard unfinished uploads below `folder` whose key is `doomed`."""

    def close(self) -> None:
        """Let connections go."""
