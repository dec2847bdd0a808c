"""The interface of the places where checkpoints are kept.

Two modules implement it: `s3_store` for object stores and `file_store` for shared file systems. Keys are relative to
the prefix and use `/`. Small objects are written whole; large ones in parts, by several threads at once. Every method
retries transient failures itself, and raises StoreError if they last.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

SMALL_BYTES: Final = 64 << 20
"""No small object is longer: the manifest of the longest archive has a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """A small object, as it was read."""

    data: bytes
    version: str
    """Changes with each `replace`. It has a meaning only in the same store."""


class Upload(Protocol):
    """A large object that is being written. It is invisible until `finish` returns."""

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        """Write part `number` (from 1), which starts at `offset`. Called by several threads, each part once."""

    def finish(self) -> None:
        """Make the object visible, whole and on stable storage."""

    def abort(self) -> None:
        """Discard what was written. Raises nothing: `discard_uploads` removes what is left later."""


class Store(Protocol):
    """A prefix in an object store, or a folder."""

    part_bytes: int
    """Least size of every part but the last. Parts of very large archives are larger."""
    threads: int
    """Number of parts that are transferred at once."""

    def read(self, key: str) -> StoredObject | None:
        """Return a small object, or None if there is none. Raises CorruptError if it has more than SMALL_BYTES."""

    def size_of(self, key: str) -> int | None:
        """Return the size of an object in bytes, or None if there is none."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object unless the key exists. Returns False if another writer's object exists.

        `data` must be unique to the caller (by a nonce in it): an object with the same bytes is the caller's own,
        written by an attempt whose answer was lost.
        """

    def replace(self, key: str, data: bytes, *, version: str | None) -> str | None:
        """Write a small object if it still has `version` (None: if there is none). Returns the new version.

        Returns None if another writer was faster. As for `create`, `data` must be unique to the caller.
        """

    def check_conditional_writes(self, key: str, data: bytes) -> None:
        """Raise StoreError unless conditional writes are honoured. Tries them on `key`, whose content `data` stays."""

    def keys(self, folder: str) -> tuple[str, ...]:
        """Return all keys below `folder/`, in no particular order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. A missing object is not an error."""

    def start_upload(self, key: str, size_bytes: int) -> Upload:
        """Start to write a large object."""

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill `target` from the object, starting at `offset`. Raises CorruptError if it is missing or too short."""

    def free_bytes(self) -> int | None:
        """Return how much may still be written; None if the store does not tell. It may be less, because of quotas."""

    def discard_uploads(self, folder: str, should_discard: Callable[[str], bool]) -> None:
        """Discard the unfinished uploads below `folder` for whose key `should_discard` is true."""

    def close(self) -> None:
        """Close the connections."""
