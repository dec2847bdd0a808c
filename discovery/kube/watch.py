"""The watch: what the API server knows, as it changes, through every fault.

A ladder of four, each there for one reason; the idea is kopf's (`kopf/_cogs/clients/watching.py`):

    Watch.forever          survives: backs off after a fault and starts over
    Watch._list_and_watch  is complete: lists, then follows on from that very version
    Watch._one_watch       is one request: the server ends it after some seconds, silence ends it a little later
    ApiServer.lines        turns chunks into lines

Each watch is ended by the server after `server_seconds` and asked for again from the last version: cheap on a kept
connection, and its acceptance is the API server's word that the list is current, even where nothing changes. After any
fault it lists again: nothing is assumed of a server that came back (it may have been restored from a backup).
"""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError, ApiUnreachableError
from hvd_elastic.discovery.kube.event_trimming import trim_pod
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_REPLICA_TYPE, Role

T = TypeVar("T")
Json = Mapping[str, Any]

PAGE: Final = 250
"""Objects a page of a list: a thousand pods at once would need more memory to parse than the sidecar may have."""
SERVER_SECONDS: Final = 10
SILENCE_SECONDS: Final = 3.0
"""How much longer than `server_seconds` nothing may come before the connection counts as dead."""
FIRST_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 1.5
"""Low: after any fault the list is to be right within 2 s of the API server's return."""
MAX_RETRY_AFTER_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 5.0
"""A connection that held for so long was a good one: the next fault is a new one."""
SHORT_SECONDS: Final = 0.5
"""A watch that the server ends sooner, without an event, is a fault: else it would be asked for without a pause."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All there is; whatever was known before is void."""

    objects: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """An object was added or modified."""

    object: T


@dataclass(frozen=True, slots=True)
class Gone(Generic[T]):
    """An object was deleted; this is its last state."""

    object: T


@dataclass(frozen=True, slots=True)
class LastContact:
    """The API server says that what was told so far is current."""


@dataclass(frozen=True, slots=True)
class WatchFault:
    """A fault. The next attempt follows after `retry_seconds`."""

    error: ApiError
    retry_seconds: float


Message = Listed[T] | Changed[T] | Gone[T] | LastContact | WatchFault
Messages = Sequence[Message[T]]

VOUCHED: Final = (LastContact(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Generic[T]):
    """What to watch, and what to make of each object: only that is kept."""

    path: str
    """Of the collection."""
    query: Mapping[str, str]
    """Selectors: the server leaves out the rest."""
    read: Callable[[Json], T]
    trim: Callable[[bytes], bytes] = bytes
    """Cuts out of an event's line what `read` does not look at, before it is decoded."""
    name: str = ""
    """Where not empty, the one object of that name, by GET: a Role can grant that without `list`."""


def workers_of(job: str, namespace: str, version: str, read: Callable[[Json], T]) -> Selection[T]:
    """The worker pods of an MPIJob. `version`: as for `one_job`; the legacy operator labels roles otherwise."""
    role = LABEL_REPLICA_TYPE if version == "v1" else LABEL_JOB_ROLE
    return Selection(
        path=f"/api/v1/namespaces/{namespace}/pods",
        query={"labelSelector": f"{LABEL_JOB_NAME}={job},{role}={Role.WORKER}"},
        read=read,
        trim=trim_pod,
    )


def nodes(read: Callable[[Json], T]) -> Selection[T]:
    """All nodes."""
    return Selection(path="/api/v1/nodes", query={}, read=read)


def one_job(job: str, namespace: str, version: str, read: Callable[[Json], T]) -> Selection[T]:
    """One MPIJob; `version` is `v2beta1`, or `v1` for the legacy training operator."""
    path = f"/apis/kubeflow.org/{version}/namespaces/{namespace}/mpijobs"
    return Selection(path=path, query={"fieldSelector": f"metadata.name={job}"}, read=read, name=job)


@dataclass(kw_only=True)
class Watch(Generic[T]):
    """Follows one selection. `forever` blocks: give it a thread of its own."""

    server: ApiServer
    selection: Selection[T]
    server_seconds: int = SERVER_SECONDS
    silence_seconds: float = SILENCE_SECONDS
    clock: Callable[[], float] = time.monotonic
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set it, and `forever` ends at its next message or fault."""
    random: Callable[[], float] = random.random
    _version: str = field(default="", init=False)

    def forever(self) -> Iterator[Messages[T]]:
        """Yield what has come by now, in its order, until stopped; never raises ApiError.

        Who takes his time between two yields gets more at once, and all of it cheaper.
        """
        faults = 0
        while not self.stopped.is_set():
            started = self.clock()
            try:
                yield from self._list_and_watch()
            except ApiError as error:
                # By the time it lasted, not by a first answer: who lists and then refuses is not asked in a rush.
                lasted = self.clock() - started
                faults = 0 if lasted > STEADY_SECONDS else faults
                wait = self._backoff(faults, error, lasted)
                faults += 1
                # Too many requests is no reason for the dearer request: go on from the version at hand.
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
            with _sense_of("list", page):
                meta = page["metadata"]
                objects += map(self.selection.read, page["items"])
                if not meta.get("continue"):
                    self._version = meta["resourceVersion"]
                    return tuple(objects)
                query["continue"] = meta["continue"]

    def _get_one(self) -> tuple[T, ...]:
        found = self.server.get(f"{self.selection.path}/{self.selection.name}")
        with _sense_of("object", found):
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
        started, came = self.clock(), 0
        silence = self.server_seconds + self.silence_seconds
        for lines in self.server.lines(self.selection.path, query, silence_seconds=silence):
            came += len(lines)
            yield from self._heard(lines)
        if not came and self.clock() - started < SHORT_SECONDS:
            raise ApiUnreachableError("the server ended the watch as soon as it had accepted it")
        yield VOUCHED

    def _heard(self, lines: list[bytes]) -> Iterator[Messages[T]]:
        messages: list[Message[T]] = []
        try:
            for line in lines:
                messages.append(self._read(line))  # noqa: PERF401 - what came before an error stays
        finally:
            # Before the error of a later line as well: the version has moved past these.
            yield messages or VOUCHED

    def _read(self, line: bytes) -> Message[T]:
        with _sense_of("watch event", line):
            event = json.loads(self.selection.trim(line))
            kind, about = event["type"], event["object"]
            if kind == "ERROR":
                raise ApiStatusError(int(about.get("code") or 500), str(about.get("message")))
            version = str(about["metadata"]["resourceVersion"])
            if _is_replayed(version, self._version):
                return LastContact()
            self._version = version
            if kind == "BOOKMARK":
                return LastContact()
            read = self.selection.read(about)
            return Gone(read) if kind == "DELETED" else Changed(read)

    def _backoff(self, faults: int, error: ApiError, lasted: float) -> float:
        if isinstance(error, ApiStatusError) and error.retry_after_seconds is not None:
            return min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS) + self.random() * FIRST_BACKOFF_SECONDS
        # Capped before the power: after a day of faults 2**faults has no float.
        ceiling = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(faults, 10), MAX_BACKOFF_SECONDS)
        wait = ceiling * (0.5 + self.random() / 2)
        # From start to start: an attempt that waited in vain for a connection has waited enough.
        return wait if lasted > STEADY_SECONDS else max(wait - lasted, FIRST_BACKOFF_SECONDS / 2)


@contextmanager
def _sense_of(what: str, said: object) -> Iterator[None]:
    """An answer that makes no sense is a fault as any other: something between here and the API server is broken."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ApiUnreachableError(f"not a {what}: {str(said)[:80]}: {error!r}") from error


def _is_replayed(version: str, known: str) -> bool:
    """Whether `known` already covers an event. Versions of one resource compare as numbers (KEP-5504)."""
    return version.isdecimal() and known.isdecimal() and int(version) <= int(known)
