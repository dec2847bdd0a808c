"""A Store in a bucket of any cloud: what asks again, and what knows that an answer was lost, for all of them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from hvd_elastic.stores.errors import CorruptError, MissingError, StoreError
from hvd_elastic.stores.object_requests import ConditionError, ObjectRequests
from hvd_elastic.stores.retry import ATTEMPTS, call_with_retries
from hvd_elastic.stores.store import StoredObject

T = TypeVar("T")


class ObjectUpload:
    """An upload in parts. The bucket shows the object only when the upload is finished."""

    def __init__(self, store: "ObjectStore", key: str, size_bytes: int) -> None:
        self._store, self._requests = store, store.requests
        self._key, self._size_bytes = key, size_bytes
        self._parts: dict[int, object] = {}
        self._upload = store.ask(lambda: self._requests.start_upload(key))

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        """Send one part. The store refuses it if it differs on arrival."""

        def put() -> object:
            return self._requests.put_part(self._key, self._upload, number, data, sha256)

        self._parts[number] = self._store.ask(put)

    def finish(self) -> None:
        """Complete the upload, and check the size of the object."""
        try:
            self._store.ask(lambda: self._requests.finish_upload(self._key, self._upload, self._parts))
        except StoreError:
            # The answer to an attempt that succeeded may have been lost: then the upload is gone, the object is there.
            if self._store.size_of(self._key) != self._size_bytes:
                raise
        if (stored := self._store.size_of(self._key)) != self._size_bytes:
            raise StoreError(f"{self._requests.where}{self._key}: {stored} of {self._size_bytes} bytes were stored")

    def abort(self) -> None:
        """Abort the upload, which deletes its parts. Nobody waits for another attempt."""
        with suppress(StoreError):
            self._requests.abort_upload(self._key, self._upload)


class ObjectStore:
    """A prefix of a bucket."""

    def __init__(
        self,
        requests: ObjectRequests,
        *,
        part_bytes: int,
        threads: int,
        sleep: Callable[[float], object],
        attempts: int = ATTEMPTS,
    ) -> None:
        self.requests = requests
        self.part_bytes = part_bytes
        self.threads = threads
        self._sleep = sleep
        self._attempts = attempts

    def ask(self, request: Callable[[], T]) -> T:
        """Send a request, and send it again after each failure that may pass."""
        return call_with_retries(request, attempts=self._attempts, sleep=self._sleep)

    def read(self, key: str) -> StoredObject | None:
        with suppress(MissingError):
            return self.ask(lambda: self.requests.read(key))
        return None

    def size_of(self, key: str) -> int | None:
        with suppress(MissingError):
            return self.ask(lambda: self.requests.size_of(key))
        return None

    def create(self, key: str, data: bytes) -> bool:
        return self.replace(key, data, version=None) is not None

    def replace(self, key: str, data: bytes, *, version: str | None) -> str | None:
        """Write under a condition. Refused, it may be by an earlier attempt of its own, whose answer was lost."""
        try:
            return self.ask(lambda: self.requests.write(key, data, version=version))
        except (ConditionError, MissingError) as error:
            if version is None and isinstance(error, MissingError):  # not even a bucket is there
                raise
            found = self.read(key)
            return found.version if found and found.data == data else None

    def check_conditional_writes(self, key: str, data: bytes) -> None:
        """Write the same bytes twice under conditions that are false: both writes must be refused."""
        false = {"there is none": None, "it has another version": self.requests.other_version}
        for condition, version in false.items():
            with suppress(ConditionError):
                self.ask(lambda version=version: self.requests.write(key, data, version=version))  # type: ignore[misc]
                raise StoreError(
                    f"{self.requests.where}: this endpoint writes an object that is to be written only if {condition},"
                    f" so two writers cannot be kept apart: use one that honours conditions"
                    f" ({self.requests.honoured_by}), or file://"
                )

    def keys(self, folder: str) -> tuple[str, ...]:
        found: list[str] = []
        more: str | None = None
        while True:
            page, more = self.ask(lambda more=more: self.requests.page(f"{folder}/", more))  # type: ignore[misc]
            found += (one.key for one in page)
            if more is None:
                return tuple(found)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete in the given order."""
        if given := tuple(keys):
            self.ask(lambda: self.requests.delete(given))

    def start_upload(self, key: str, size_bytes: int) -> ObjectUpload:
        if size_bytes > self.requests.most_bytes:
            most = f"{self.requests.most_bytes >> 40} TiB"
            raise StoreError(f"{self.requests.where}{key}: {size_bytes} bytes are more than this store holds: {most}")
        return ObjectUpload(self, key, size_bytes)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        try:
            self.ask(lambda: self.requests.read_into(key, offset, target))
        except MissingError as error:
            raise CorruptError(f"{self.requests.where}{key} is missing or too short") from error

    def free_bytes(self) -> None:
        """Unknown: an upload that finds no room fails."""

    def discard_uploads(self, folder: str, should_discard: Callable[[str], bool]) -> None:
        """Abort unfinished uploads: their parts cost money and are in no listing of objects."""
        for key, upload in self.ask(lambda: tuple(self.requests.uploads(folder))):
            if should_discard(key):
                with suppress(StoreError):
                    self.ask(lambda key=key, upload=upload: self.requests.abort_upload(key, upload))  # type: ignore[misc]

    def close(self) -> None:
        self.requests.close()
