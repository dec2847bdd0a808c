"""The watch: follows the API server's objects as they change, and survives every fault.

Four functions, each with one job; the idea is kopf's (`kopf/_cogs/clients/watching.py`):

    Watch.forever          survives faults: backs off and starts over
    Watch._list_and_watch  misses nothing: lists, then watches from the list's version on
    Watch._one_watch       makes one request: the server ends it after some seconds, silence a little later
    ApiServer.lines        turns chunks into lines

The server ends each watch after `server_seconds`, and it is requested again from the last version. That is cheap on a
kept connection, and by accepting it the API server confirms that the list is current, even if nothing changes. After
any fault the watch lists again: it assumes nothing of a server that came back (it may have been restored from a
backup).
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError, ApiUnreachableError
from hvd_elastic.discovery.kube.event_trimming import trim_pod
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.system.backoff import Backoff, jitter

T = TypeVar("T")
Json = Mapping[str, Any]

PAGE: Final = 250
"""Objects per page of a list. Parsing a thousand pods at once needs more memory than the sidecar may have."""
SERVER_SECONDS: Final = 10
SILENCE_SECONDS: Final = 3.0
"""The connection counts as dead after this much silence on top of `server_seconds`."""
BACKOFF: Final = Backoff(first_seconds=0.1, most_seconds=1.5)
"""Short: after any fault the list must be right within 2 s of the API server's return."""
MAX_RETRY_AFTER_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 5.0
"""A connection that lasted this long was good: the backoff starts over at the next fault."""
SHORT_SECONDS: Final = 0.5
"""A watch that the server ends sooner, without an event, is a fault; otherwise it would be requested without a
pause."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects there are. What was known before is void."""

    objects: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """An object was added or modified."""

    object: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """An object was deleted; this is its last state."""

    object: T


@dataclass(frozen=True, slots=True)
class UpToDate:
    """The API server confirms that nothing else has changed so far."""


@dataclass(frozen=True, slots=True)
class WatchFault:
    """An attempt failed. The next one follows after `retry_seconds`."""

    error: ApiError
    retry_seconds: float


Message = Listed[T] | Changed[T] | Deleted[T] | UpToDate | WatchFault
Messages = Sequence[Message[T]]

UP_TO_DATE: Final = (UpToDate(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Generic[T]):
    """Which objects to watch, and how to read each one."""

    path: str
    """The collection's."""
    query: Mapping[str, str]
    """Selectors, applied by the server."""
    read: Callable[[Json], T]
    """Makes the value that is kept of an object."""
    trim: Callable[[bytes], bytes] = bytes
    """Removes from an event's line, before it is decoded, what `read` does not need."""
    name: str = ""
    """If not empty, only the object of this name, read by GET: a Role can grant that without `list`."""


def workers_of(place: MPIJobPlace, read: Callable[[Json], T]) -> Selection[T]:
    """The worker pods of an MPIJob."""
    return Selection(path=f"{place.core}/pods", query=place.pods_of(Role.WORKER), read=read, trim=trim_pod)


def nodes(read: Callable[[Json], T]) -> Selection[T]:
    """All nodes."""
    return Selection(path="/api/v1/nodes", query={}, read=read)


def one_job(place: MPIJobPlace, read: Callable[[Json], T]) -> Selection[T]:
    """The MPIJob itself."""
    query = {"fieldSelector": f"metadata.name={place.job}"}
    return Selection(path=place.path.rpartition("/")[0], query=query, read=read, name=place.job)


@dataclass(kw_only=True)
class Watch(Generic[T]):
    """Follows one selection. `forever` blocks, so it needs a thread of its own."""

    server: ApiServer
    selection: Selection[T]
    server_seconds: int = SERVER_SECONDS
    silence_seconds: float = SILENCE_SECONDS
    clock: Callable[[], float] = time.monotonic
    stopped: threading.Event = field(default_factory=threading.Event)
    """Once it is set, `forever` ends at its next message or fault."""
    random: Callable[[], float] = jitter
    _version: str = field(default="", init=False)

    def forever(self) -> Iterator[Messages[T]]:
        """Yield batches of messages, in order, until stopped. Never raises ApiError.

        A slow consumer receives several events in one batch, which costs less per event.
        """
        faults = 0
        while not self.stopped.is_set():
            started = self.clock()
            try:
                yield from self._list_and_watch()
            except ApiError as error:
                # What counts is how long it lasted, not a first answer: a server may list and then refuse to watch.
                lasted = self.clock() - started
                faults = 1 if lasted > STEADY_SECONDS else faults + 1
                wait = self._retry_seconds(faults, error, lasted)
                # To list is the dearer request: after "too many requests", go on from the last version.
                if not (isinstance(error, ApiStatusError) and error.status == HTTPStatus.TOO_MANY_REQUESTS):
                    self._version = ""
                yield (WatchFault(error, wait),)
                self.stopped.wait(wait)

    def list_all(self) -> tuple[T, ...]:
        """One list, paged. Raises ApiError."""
        if self.selection.name:
            return self._get_one()
        objects: list[T] = []
        query = {**self.selection.query, "limit": str(PAGE)}
        while True:
            page = self.server.get(self.selection.path, query)
            with _decoding("list", page):
                meta = page["metadata"]
                objects += map(self.selection.read, page["items"])
                if not meta.get("continue"):
                    self._version = meta["resourceVersion"]
                    return tuple(objects)
                query["continue"] = meta["continue"]

    def _get_one(self) -> tuple[T, ...]:
        found = self.server.get(f"{self.selection.path}/{self.selection.name}")
        with _decoding("object", found):
            self._version = found["metadata"]["resourceVersion"]
            return (self.selection.read(found),)

    def _list_and_watch(self) -> Iterator[Messages[T]]:
        if not self._version:
            yield (Listed(self.list_all()),)
        while True:
            yield from self._one_watch()

    def _one_watch(self) -> Iterator[Messages[T]]:
        query = {
            **self.selection.query,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self.server_seconds),
        }
        started, received = self.clock(), 0
        silence = self.server_seconds + self.silence_seconds
        for lines in self.server.lines(self.selection.path, query, silence_seconds=silence):
            received += len(lines)
            yield from self._read_all(lines)
        if not received and self.clock() - started < SHORT_SECONDS:
            raise ApiUnreachableError("the server ended the watch as soon as it had accepted it")
        yield UP_TO_DATE

    def _read_all(self, lines: list[bytes]) -> Iterator[Messages[T]]:
        messages: list[Message[T]] = []
        try:
            for line in lines:
                messages.append(self._read(line))  # noqa: PERF401 - keeps those before an error
        finally:
            # Also before a later line's error is raised: the version has moved past these.
            yield messages or UP_TO_DATE

    def _read(self, line: bytes) -> Message[T]:
        with _decoding("watch event", line):
            event = json.loads(self.selection.trim(line))
            kind, about = event["type"], event["object"]
            if kind == "ERROR":
                raise ApiStatusError(int(about.get("code") or 500), str(about.get("message")))
            version = str(about["metadata"]["resourceVersion"])
            if _is_replayed(version, self._version):
                return UpToDate()
            self._version = version
            if kind == "BOOKMARK":
                return UpToDate()
            read = self.selection.read(about)
            return Deleted(read) if kind == "DELETED" else Changed(read)

    def _retry_seconds(self, faults: int, error: ApiError, lasted: float) -> float:
        if isinstance(error, ApiStatusError) and error.retry_after_seconds is not None:
            return min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS) + self.random() * BACKOFF.first_seconds
        wait = BACKOFF.with_jitter(faults, self.random, least=0.5)
        # Counted from start to start: an attempt that spent its time waiting for a connection has waited enough.
        return wait if lasted > STEADY_SECONDS else max(wait - lasted, BACKOFF.first_seconds / 2)


@contextmanager
def _decoding(what: str, received: object) -> Iterator[None]:
    """Make an answer that cannot be read a fault like any other: something on the way to the API server is broken."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ApiUnreachableError(f"not a {what}: {str(received)[:80]}: {error!r}") from error


def _is_replayed(version: str, known: str) -> bool:
    """Whether `known` already covers an event. Versions of one resource compare as numbers (KEP-5504)."""
    return version.isdecimal() and known.isdecimal() and int(version) <= int(known)
