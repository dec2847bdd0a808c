"""The API server, reached as kubectl reaches it: contexts, every way to log in, in-cluster accounts, impersonation.

Requests go over urllib3. Objects are plain JSON, as the API server writes them.
"""

import gc
import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from hvd_elastic.client.connection.cluster_errors import (
    ClusterError,
    ConflictError,
    CredentialsError,
    ForbiddenError,
    NotConfiguredError,
    NotFoundError,
    RefusalCause,
    RefusedError,
    UnreachableError,
    error_of,
)
from hvd_elastic.client.connection.connection_pool import CONNECT_SECONDS
from hvd_elastic.client.connection.login_lookup import log_in
from hvd_elastic.client.connection.session import Connections, Session

if TYPE_CHECKING:
    import urllib3

__all__ = [
    "Answer",
    "ClusterClient",
    "ClusterError",
    "ConflictError",
    "CredentialsError",
    "ForbiddenError",
    "Json",
    "NotConfiguredError",
    "NotFoundError",
    "Read",
    "RefusalCause",
    "RefusedError",
    "UnreachableError",
]

Json = dict[str, Any]

PAGE_SIZE: Final = 500
"""Objects per page of a list: what kubectl asks for (`--chunk-size`)."""
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""JSON is YAML."""
_STREAM_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 4 << 20
"""Of a line of a log or a watch; the rest of it is left out. The largest object of a cluster is smaller."""
CUT_MARK: Final = b" ... (cut: the line is longer)"
_ITEMS: Final = re.compile(r'"items"\s*:\s*\[\s*')
"""Before it stands what a list is, which has no text of anybody's. A list of nothing may have `null` there."""
_BETWEEN: Final = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server answered."""

    body: Json
    time: datetime | None
    """The server's clock, whole seconds, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A GET of one object, or of a list in one page."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)


class ClusterClient:
    """One caller at one API server. Any thread may use it."""

    def __init__(self, session: Session, namespace: str = "") -> None:
        """`namespace`: by default the login's."""
        self._session = session
        self.namespace: Final = namespace or session.connections.login.namespace
        """The one that was asked for, else the context's, or the pod's."""

    @classmethod
    def connect(
        cls, *, context: str | None = None, namespace: str | None = None, impersonate: str | None = None
    ) -> "ClusterClient":
        """Log in: in a pod with its own account, unless a context is named; else as the kubeconfig says.

        Sends nothing. Raises NotConfiguredError if no cluster is configured, or the extra `cluster` is missing.
        """
        login = log_in(context)
        if namespace:
            login = replace(login, namespace=namespace)
        if impersonate:
            others = (pair for pair in login.impersonation if pair[0] != "Impersonate-User")
            login = replace(login, impersonation=(("Impersonate-User", impersonate), *others))
        # By its name: whoever makes another context the current one meanwhile does not mean this caller.
        return cls(Session(login, log_in=lambda: log_in(login.context or None)))

    def within(self, namespace: str) -> "ClusterClient":
        """The same caller with another namespace, over the same connections."""
        return ClusterClient(self._session, namespace)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._session.connections.login.server

    def get(self, path: str, **query: str) -> Json:
        """One object, or one answer of another kind (`/version`). Raises ClusterError."""
        return self.ask("GET", path, query=query).body

    def list(self, path: str, **query: str) -> Iterator[Json]:
        """The objects of a list, page by page. Raises ClusterError."""
        for page in self.pages(path, **query):
            yield from page["items"]

    def pages(self, path: str, **query: str) -> Iterator[Json]:
        """The pages of a list, whose metadata has the version up to which it is. Raises ClusterError."""
        going_on = ""
        while True:
            page = {"limit": str(PAGE_SIZE), **query, **({"continue": going_on} if going_on else {})}
            answer = self.get(path, **page)
            yield answer
            going_on = answer["metadata"].get("continue", "")
            if not going_on:
                return

    def list_cached(self, path: str) -> Iterator[Json]:
        """The objects of a list as the API server has them in its memory, in one answer. Raises ClusterError.

        They may be a moment old. 1,000 MPIJobs took a server 0.5 s of CPU, and 4 s as pages, which it reads from etcd.
        https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
        """
        with self._errors():
            response = self._send("GET", path, {"resourceVersion": "0"})
            text = response.data
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._error(response, text, "GET", path)
        del response  # it holds the text too
        try:
            yield from _items(text.decode())
        except ValueError as error:
            raise self._foreign_answer() from error

    def gather(self, reads: Sequence[Read]) -> Sequence[Json | ClusterError]:
        """Several GETs at the same time: all together take one round trip. The answers are in the order of `reads`.

        What the API server refuses (NotFoundError, ForbiddenError, RefusedError) stands in its answer's place. What
        concerns all of them (UnreachableError, CredentialsError) is raised.
        """
        answers: list[Json | ClusterError] = [NotFoundError("not asked")] * len(reads)
        failures: list[Exception] = []

        def one(place: int, read: Read) -> None:
            try:
                answers[place] = self.get(read.path, **read.query)
            except ClusterError as error:
                answers[place] = error
            except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
                failures.append(error)

        threads = [threading.Thread(target=one, args=pair, daemon=True) for pair in enumerate(reads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:  # what was not read must not pass for what is not there
            raise failures[0]
        for answer in answers:
            if isinstance(answer, UnreachableError | CredentialsError):
                raise answer
        return answers

    def create(self, path: str, body: Json, **query: str) -> Json:
        """A new object, or a question that is asked as one (`SelfSubjectAccessReview`). Raises ClusterError."""
        return self.ask("POST", path, body=body, query=query).body

    def patch(self, path: str, body: Json, **query: str) -> Json:
        """Merge `body` into an object (RFC 7396): None removes a key. Raises ClusterError."""
        return self.ask("PATCH", path, body=body, query=query, content_type=MERGE_PATCH).body

    def apply(self, path: str, body: Json, *, manager: str, force: bool = False, dry_run: bool = False) -> Json:
        """Server-side apply of an object's fields as `manager`, and the object after it.

        A field that the API server does not know is refused: an older CRD would drop it in silence. Raises
        ConflictError if another manager owns a field (`causes` say which, and whose), unless `force`.
        """
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        return self.ask("PATCH", path, body=body, query=query, content_type=APPLY_PATCH).body

    def delete(self, path: str, *, uid: str = "", propagation: str = "", dry_run: bool = False) -> Json:
        """Delete an object, with what it owns as `propagation` says: `Background` (the default) or `Foreground`.

        Raises NotFoundError; ConflictError if `uid` is given, and the object of this name has another.
        """
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        if dry_run:
            options["dryRun"] = ["All"]
        return self.ask("DELETE", path, body=options).body

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Any request. Raises ClusterError: one sentence that says what was asked and why it failed."""
        with self._errors():
            response = self._send(method, path, query, body=body, content_type=content_type)
            text = response.data
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._error(response, text, method, path)
        date = response.headers.get("Date")
        try:
            return Answer(body=_parsed(text), time=parsedate_to_datetime(date) if date else None)
        except ValueError as error:
            raise self._foreign_answer() from error

    def stream(self, path: str, query: Mapping[str, str], *, silence_seconds: float | None = None) -> Iterator[bytes]:
        """The lines of a watch or of a log as they come, without their line breaks, cut at MAX_LINE_BYTES.

        Ends when the server ends the answer. Whoever stops reading, by KeyboardInterrupt too, closes the connection.
        Raises ClusterError before the first line; later UnreachableError, if the connection breaks (a line that was not
        whole then is left out) or nothing comes for `silence_seconds` (None: waits for ever).
        """
        import urllib3

        with self._errors():
            timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=silence_seconds)
            response = self._send("GET", path, query, preload_content=False, timeout=timeout)
            try:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    raise self._error(response, response.read(), "GET", path)
                yield from _lines(response)
            finally:
                response.close()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        body: Json | None = None,
        content_type: str = "",
        **options: Any,
    ) -> "urllib3.BaseHTTPResponse":
        """Send a request, and once more with a login that is read anew where this one is not accepted any more.

        What is refused for who asks was not looked at, so nothing is done twice.
        """
        from urllib3.exceptions import HTTPError

        def send(connections: Connections) -> "urllib3.BaseHTTPResponse":
            return _exchange(connections, method, path, query, body=body, content_type=content_type, **options)

        used = self._session.connections
        try:
            response = send(used)
        except HTTPError as error:
            if not _is_tls_refusal(error) or (renewed := self._session.renew(used)) is None:
                raise
        else:
            if response.status != HTTPStatus.UNAUTHORIZED or (renewed := self._session.renew(used)) is None:
                return response
            response.close()
        return send(renewed)

    def _error(self, response: "urllib3.BaseHTTPResponse", text: bytes, method: str, path: str) -> ClusterError:
        after = response.headers.get("Retry-After")
        return error_of(response.status, text, method=method, path=path, server=self.server, retry_after=after)

    def _foreign_answer(self) -> UnreachableError:
        return UnreachableError(f"what answers at {self.server} is not a Kubernetes API server")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import urllib3

        try:
            yield
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(f"{self.server} does not answer: {_root_cause(error)}") from error


def _exchange(
    connections: Connections,
    method: str,
    path: str,
    query: Mapping[str, str] | None,
    *,
    body: Json | None,
    content_type: str,
    **options: Any,
) -> "urllib3.BaseHTTPResponse":
    from urllib3 import HTTPHeaderDict

    login = connections.login
    headers = HTTPHeaderDict({"Accept": "application/json", "User-Agent": "hvd-elastic"})
    for name, value in login.impersonation:
        headers.add(name, value)
    if authorization := login.authorization():
        headers["Authorization"] = authorization
    if body is not None:
        headers["Content-Type"] = content_type
        options["body"] = json.dumps(body)
    url = login.server + path + (f"?{urlencode(query)}" if query else "")
    return connections.pool.urlopen(method, url, headers=headers, redirect=False, **options)


def _is_tls_refusal(error: BaseException | None) -> bool:
    """Whether one side does not trust the other's certificate. A connection that only broke is no refusal."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        error = error.__cause__ or error.__context__
    return False


def _parsed(text: bytes) -> Json:
    """A JSON document. Raises ValueError.

    Meanwhile nothing is collected: a document has no cycles, and the collector would look through what is made of it
    again and again, which takes four times as long as parsing (500 MPIJobs).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        document: Json = json.loads(text)
    finally:
        if collects:
            gc.enable()
    return document


def _items(text: str) -> Iterator[Json]:
    """The objects of a list, each parsed when it is its turn: all at once take far more memory. Raises ValueError."""
    begin = _ITEMS.search(text)
    if begin is None:
        json.loads(text)  # a list of nothing, or no JSON
        return
    decode, place = json.JSONDecoder().raw_decode, begin.end()
    while text[place] != "]":
        item, place = decode(text, place)
        yield item
        place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]  # it matches nothing too


def _lines(response: "urllib3.BaseHTTPResponse") -> Iterator[bytes]:
    line = bytearray()
    for piece in response.stream(_STREAM_BYTES):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            _append(line, end)
            yield bytes(line)
            line.clear()
        _append(line, rest)
    if line:
        yield bytes(line)


def _append(line: bytearray, more: bytes) -> None:
    """A line that has its mark is longer than MAX_LINE_BYTES, and takes no more."""
    room = MAX_LINE_BYTES - len(line)
    if room >= 0:
        line += more if len(more) <= room else more[:room] + CUT_MARK


def _root_cause(error: BaseException) -> str:
    """The innermost error: urllib3 wraps it several times."""
    while inner := getattr(error, "reason", None) or error.__cause__:
        if not isinstance(inner, BaseException):
            return str(inner)
        error = inner
    return str(error)
