"""Lists a data set, wherever it is, and reads ranges of exactly the listed version of an object.

The clouds' own libraries list, and say what is stored of an object's bytes. obstore, which is Rust's object_store,
reads: Python's libraries spend three quarters of a small object's read on themselves, and their threads share one core.
Where a read fails, the cloud's library asks for the same object: it has the words for what is wrong, and has expired
credentials renewed. Then obstore is opened again.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Final, TypeVar

from obstore.exceptions import BaseError, PreconditionError
from obstore.store import ObjectStore

from hvd_elastic.stores.data_set.url_list import UrlList
from hvd_elastic.stores.errors import ChangedObjectError, CheckpointUrlError, StoreError
from hvd_elastic.stores.location import Location, is_url_list
from hvd_elastic.stores.object_requests import ListedObject, ReadRequests
from hvd_elastic.stores.retry import ATTEMPTS, BACKOFF, TransientError, call_with_retries, no_answer
from hvd_elastic.stores.stored_digest import StoredDigest

T = TypeVar("T")

PIECE_BYTES: Final = 256 << 10
"""A piece is still in the processor's cache when it is written and added to its checksum."""


@cache
def _process_of_threads() -> int:
    """The process that obstore's threads are in, from the first call on."""
    return os.getpid()


class ObjectSource:
    """The objects below a URL. Threads may read at the same time."""

    def __init__(
        self, url: str, *, endpoint: str | None, threads: int, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Nothing is sent yet. Raises CheckpointUrlError."""
        self.url, self._sleep = url, sleep
        self._requests = _requests(url, endpoint=endpoint, threads=threads)
        self._opened: ObjectStore | None = None
        self._lock = threading.Lock()

    def objects(self) -> Iterator[ListedObject]:
        """List everything below the URL. Raises StoreError."""
        more: str | None = None
        while True:
            page, more = self._ask(partial(self._requests.page, "", more))
            yield from (one for one in page if one.key)  # else it is the marker of the prefix itself
            if more is None:
                return

    def digest_of(self, one: ListedObject) -> StoredDigest | None:
        """What the store says of an object's bytes; None: nothing. Raises ChangedObjectError, StoreError."""
        return self._ask(lambda: self._requests.digest_of(one))

    def pieces(self, one: ListedObject, offset: int, length: int) -> Iterator[bytes]:
        """Read a range as it arrives, in pieces of PIECE_BYTES or so; after a failure from where it was.

        Raises ChangedObjectError if the object is not the listed version any more, and StoreError.
        """
        end, failures = offset + length, 0
        while offset < end:
            failure: StoreError = TransientError(f"{self._requests.where}{one.key}: the answer ended too soon")
            begun = offset
            try:
                for piece in self._answer(one, offset, end):
                    yield piece
                    offset += len(piece)
            except (FileNotFoundError, PreconditionError) as error:
                changed = f"{self._requests.where}{one.key}: was replaced or deleted while it was copied: stage again"
                raise ChangedObjectError(changed) from error
            except (BaseError, OSError) as error:
                failure = no_answer(f"{self._requests.where}{one.key}", error)
            if offset < end:
                failures = failures + 1 if offset == begun else 1
                if failures == ATTEMPTS or not isinstance(failure, TransientError):
                    raise failure
                self._open_again(one)
                self._sleep(BACKOFF.with_jitter(failures))

    def _answer(self, one: ListedObject, offset: int, end: int) -> Iterable[bytes]:
        path, options = self._requests.bulk(one)
        if (offset, end) != (0, one.size_bytes):
            options["range"] = (offset, end)
        try:
            answer = self._store().get(path, options=options)
        except ValueError as error:
            raise StoreError(f"{self._requests.where}{one.key}: no path for obstore: {error}") from error
        return [bytes(answer.bytes())] if end - offset <= PIECE_BYTES else answer.stream(min_chunk_size=PIECE_BYTES)

    def _store(self) -> ObjectStore:
        if _process_of_threads() != os.getpid():  # a request would wait for threads that are not here, for ever
            raise StoreError(f"{self.url}: is read in a process that was forked from one that reads: spawn it instead")
        with self._lock:
            if self._opened is None:
                self._opened = self._requests.bulk_store()
            return self._opened

    def _open_again(self, one: ListedObject) -> None:
        """Raises StoreError where the store says that it is of no use."""
        with suppress(TransientError):
            self._requests.page(one.key, None)  # a HEAD's answer has no words
        self._opened = None

    def _ask(self, request: Callable[[], T]) -> T:
        return call_with_retries(request, attempts=ATTEMPTS, sleep=self._sleep)

    def close(self) -> None:
        self._requests.close()


def _requests(url: str, *, endpoint: str | None, threads: int) -> ReadRequests:
    if is_url_list(url):
        return UrlList(url)
    location = Location.parse(url, endpoint=endpoint, needs_prefix=False)
    if location.scheme == "file":
        raise CheckpointUrlError(f"{url}: is a folder already: have the job read it from there")
    return replace(location, threads=threads).requests()
