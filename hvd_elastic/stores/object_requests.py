"""The requests that an object store answers, one implementation for each cloud.

A method sends each request once: whoever calls it decides whether to ask again (`object_store.py`). So the retries of
the clouds' libraries are off: theirs do not know that a conditional write which is refused at the second attempt may
have succeeded at the first. Keys are below the prefix that the requests were opened for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from hvd_elastic.stores.store import StoredObject
from hvd_elastic.stores.stored_digest import StoredDigest

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, ObjectStore

CONNECT_SECONDS: Final = 20.0
"""Also limits the time to send one part: a socket's time-out covers the whole `sendall`."""
SILENCE_SECONDS: Final = 20.0
"""Longest wait for the next byte of an answer."""
PART_SECONDS: Final = 60.0
"""Longest time to read one part, even if bytes arrive steadily."""
_WHOLE_ANSWER: Final = timedelta(hours=1)
"""obstore's default, 30 seconds, would end a range that arrives slowly on many connections."""


class ConditionError(Exception):
    """The object that a write is to replace is another one by now, or is there where none should be."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ListedObject:
    """One object of a listing."""

    key: str
    size_bytes: int
    version: str
    """Another one if the object is replaced: S3's and Azure's ETag without quotes, the generation of GCS."""
    digest: StoredDigest | None = field(default=None, compare=False)
    """What the listing says of its bytes, if it does."""


class ReadRequests(Protocol):
    """Requests that list objects and say what is stored of them. Threads may send at the same time.

    Raises TransientError where the next attempt may succeed, MissingError where there is no such object, StoreError.
    """

    where: str
    """URL of the prefix, for messages."""

    def page(self, below: str, more: str | None) -> tuple[Sequence[ListedObject], str | None]:
        """Objects whose keys begin with `below`, from where the page before ended, and where this one ends.

        None: it is the last.
        """

    def digest_of(self, one: ListedObject) -> StoredDigest | None:
        """What the store says of an object's bytes; None: nothing. Raises ChangedObjectError."""

    def bulk(self, one: ListedObject) -> tuple[str, "GetOptions"]:
        """How obstore asks for exactly this version of a listed object: its path, and the condition."""

    def bulk_store(self) -> "ObjectStore":
        """Obstore's access to the same bucket with the same credentials, once it was listed."""

    def close(self) -> None:
        """Close the connections."""


class ObjectRequests(ReadRequests, Protocol):
    """Requests about the objects below a prefix of one bucket."""

    most_bytes: int
    """Of an object that is written in parts."""
    honoured_by: str
    """Stores of this kind that honour conditions on writes."""
    other_version: str
    """One that no object has."""

    def read(self, key: str) -> StoredObject:
        """A whole small object. Raises CorruptError if it has more than SMALL_BYTES."""

    def size_of(self, key: str) -> int:
        """Bytes of an object."""

    def write(self, key: str, data: bytes, *, version: str | None) -> str:
        """Write a small object in place of `version`; None: of nothing. Returns its version. Raises ConditionError."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects in this order. A missing one is not an error."""

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on. Raises CorruptError if the object is too short."""

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


def bulk_options(url: str, *, authorities: str | None, headers: Mapping[str, str] | None = None) -> "ClientConfig":
    """Time limits of obstore's requests, and whom they trust beside the authorities of the system."""
    found: ClientConfig = {
        "allow_http": url.startswith("http:"),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=SILENCE_SECONDS),
        "timeout": _WHOLE_ANSWER,
        "default_headers": dict(headers or {}),
    }
    if authorities:
        found["root_certificate"] = Path(authorities).read_bytes()
    return found
