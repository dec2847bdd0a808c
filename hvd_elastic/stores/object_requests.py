"""The requests that an object store answers, one implementation for each cloud.

A method sends each request once: whoever calls it decides whether to ask again (`object_store.py`). So the retries of
the clouds' libraries are off: theirs do not know that a conditional write which is refused at the second attempt may
have succeeded at the first. Keys are below the prefix that the requests were opened for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from hvd_elastic.stores.store import StoredObject

CONNECT_SECONDS: Final = 20.0
"""Also limits the time to send one part: a socket's time-out covers the whole `sendall`."""
SILENCE_SECONDS: Final = 20.0
"""Longest wait for the next byte of an answer."""
PART_SECONDS: Final = 60.0
"""Longest time to read one part, even if bytes arrive steadily."""


class ConditionError(Exception):
    """The object that a write is to replace is another one by now, or is there where none should be."""


class ObjectRequests(Protocol):
    """Requests about the objects below a prefix of one bucket. Threads may send at the same time.

    Raises TransientError where the next attempt may succeed, else StoreError.
    """

    where: str
    """URL of the prefix, for messages."""
    most_bytes: int
    """Of an object that is written in parts."""
    honoured_by: str
    """Stores of this kind that honour conditions on writes."""
    other_version: str
    """One that no object has."""

    def read(self, key: str) -> StoredObject | None:
        """A whole small object; None: there is none. Raises CorruptError if it has more than SMALL_BYTES."""

    def size_of(self, key: str) -> int | None:
        """Bytes of an object; None: there is none."""

    def write(self, key: str, data: bytes, *, version: str | None) -> str:
        """Write a small object in place of `version`; None: of nothing. Returns its version. Raises ConditionError."""

    def page(self, folder: str, more: str | None) -> tuple[Sequence[str], str | None]:
        """Keys below `folder/`, from where the page before ended, and where this one ends; None: it is the last."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects in this order. A missing one is not an error."""

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on. Raises CorruptError if the object is missing or too short."""

    def start_upload(self, key: str) -> str:
        """Begin an upload in parts, and return its name."""

    def put_part(self, key: str, upload: str, number: int, data: bytearray, sha256: bytes) -> object:
        """Send one part, numbered from 1, with a checksum that the store compares. Returns what `finish` needs."""

    def finish_upload(self, key: str, upload: str, parts: Mapping[int, object]) -> None:
        """Make the object of these parts visible."""

    def abort_upload(self, key: str, upload: str) -> None:
        """Discard an upload and its parts. One that is gone is not an error."""

    def uploads(self, folder: str) -> Iterable[tuple[str, str]]:
        """Key and name of the unfinished uploads below `folder/`."""

    def close(self) -> None:
        """Close the connections."""
