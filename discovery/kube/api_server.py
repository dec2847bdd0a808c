"""The connection to the Kubernetes API server: one kept-alive HTTP connection, over the standard library.

Importing the `kubernetes` package takes seconds and 96 MiB, more than the whole sidecar may have. Discovery needs only
five verbs on three kinds.
"""

import http.client
import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.system.plain_words import printable

Json = Mapping[str, Any]
Headers = Mapping[str, str]

CONNECT_SECONDS: Final = 1.5
"""An API server's return must be noticed within 2 s, so no attempt may hang for longer."""
ANSWER_SECONDS: Final = 10.0
MAX_BATCH_LINES: Final = 64
"""Lines of a watch per batch. More at a time would cost memory and save no time."""
USER_AGENT: Final = "hvd-elastic-discovery"
_TCP_KEEPIDLE: Final[int] = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE")  # noqa: B009
"""macOS calls it TCP_KEEPALIVE."""
KEEPALIVE: Final = {_TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 5}
"""Seconds, seconds, times. A server that came back and has lost the connection rejects a probe, so within a second.
Without probes, a watch would take the silence for a quiet cluster until its silence limit."""
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_METADATA: Final = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
"""https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""

_NONE: Final[Headers] = {}

Connection = http.client.HTTPConnection


class ApiError(HvdElasticError):
    """A request to the API server failed."""


class ApiUnreachableError(ApiError):
    """No answer, or an incomplete one: the network, TLS, a time-out, a server that is shutting down."""


class ApiStatusError(ApiError):
    """An answer with an HTTP error status."""

    def __init__(self, status: int, message: str, retry_after_seconds: float | None = None) -> None:
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"HTTP {status}: {printable(message)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The API server's address and how to log in. TLS and token are read for each connection and request: both
    rotate.
    """

    host: str
    port: int
    tls: Callable[[], ssl.SSLContext] | None = None
    """None for plain HTTP."""
    token: Callable[[], str | None] = field(default=lambda: None)
    prefix: str = ""
    """Path before `/api`, for some proxies."""

    def connect(self) -> Connection:
        """A new connection, not yet open."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_SECONDS)
        return http.client.HTTPSConnection(self.host, self.port, timeout=CONNECT_SECONDS, context=self.tls())


class ApiServer:
    """One connection. Not thread-safe."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: Connection | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """GET one object or list. Raises ApiError."""
        return self._request("GET", path + _query(query))

    def version(self, path: str) -> str:
        """The resource version of one object, of which nothing but its metadata is sent. Raises ApiError."""
        return str(self._request("GET", path, headers=_METADATA)["metadata"]["resourceVersion"])

    def create(self, path: str, body: Json) -> Json:
        """POST a new object. Raises ApiError."""
        return self._request("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """Merge `body` into an object (RFC 7396). Raises ApiError."""
        return self._request("PATCH", path, body, _MERGE)

    def apply(self, path: str, body: Json) -> Json:
        """Apply `body` on the server: what it names becomes so, also where there is no such object. Raises ApiError."""
        query = _query({"fieldManager": USER_AGENT, "force": "true"})
        return self._request("PATCH", path + query, body, _APPLY)

    def delete(self, path: str, body: Json) -> Json:
        """DELETE with the DeleteOptions in `body`. Raises ApiError."""
        return self._request("DELETE", path, body)

    def lines(self, path: str, query: Mapping[str, str], *, silence_seconds: float) -> Iterator[list[bytes]]:
        """Stream a watch: first an empty list when the server has accepted it, then lists of the lines received.

        Ends when the server ends the response properly. Raises ApiError for any other end, and if nothing comes for
        `silence_seconds`. Drops an incomplete last line, and lines that came just before a fault.
        """
        try:
            response = self._send("GET", path + _query(query))
            assert self._connection is not None
            if self._connection.sock is not None:  # None: the response holds the socket and closes it at its end
                self._connection.sock.settimeout(silence_seconds)
            yield []
            lines, rest = list[bytes](), b""
            while chunk := response.read1(1 << 16):
                *whole, rest = (rest + chunk).split(b"\n")
                lines += filter(None, whole)
                if lines and (len(lines) >= MAX_BATCH_LINES or not self._has_more(response)):
                    yield lines
                    lines = []
            if lines:
                yield lines
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unreachable(self, error: Exception) -> ApiUnreachableError:
        where = f"{self._access.host}:{self._access.port}"
        return ApiUnreachableError(f"the API server {where}: {type(error).__name__}: {error}")

    def _has_more(self, response: http.client.HTTPResponse) -> bool:
        """Whether the next read would find something, which then joins the same batch."""
        sock = None if self._connection is None else self._connection.sock
        if sock is None:
            return False
        timeout = sock.gettimeout()
        sock.settimeout(0)
        try:
            buffered = len(response.fp.peek())
        except ssl.SSLWantReadError:
            buffered = 0
        finally:
            sock.settimeout(timeout)
        # The line break that ends a chunk is read with the next chunk.
        return buffered > len(b"\r\n") or _readable(sock)

    def _request(self, method: str, path: str, body: Json | None = None, headers: Headers = _NONE) -> Json:
        try:
            text = self._send(method, path, body, headers).read()
            answer: Json = json.loads(text)
            return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._unreachable(error) from error

    def _send(
        self, method: str, path: str, body: Json | None = None, headers: Headers = _NONE
    ) -> http.client.HTTPResponse:
        self._drop_closed()
        reused = self._connection is not None
        try:
            response = self._exchange(method, path, body, headers)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            # A server may close an idle connection at any time; that is not a fault. A write is never sent twice.
            if not reused or method != "GET":
                raise
            response = self._exchange(method, path, body, headers)
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _status_error(response)
        return response

    def _drop_closed(self) -> None:
        """Close a connection that the server has closed while it was idle, as kube-apiserver does after 90 s or less.

        A write would fail on it, and is not sent again.
        """
        sock = None if self._connection is None else self._connection.sock
        if sock is not None and _readable(sock):  # nothing was asked for, so it is the end, or no answer of ours
            self.close()

    def _exchange(self, method: str, path: str, body: Json | None, own: Headers) -> http.client.HTTPResponse:
        if self._connection is None or self._connection.sock is None:
            self._connection = self._access.connect()
            self._connection.connect()
            for option, value in KEEPALIVE.items():
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection.sock.settimeout(ANSWER_SECONDS)
        headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": USER_AGENT, **own}
        if token := self._access.token():
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body)
        self._connection.request(method, self._access.prefix + path, data, headers)
        return self._connection.getresponse()


def _readable(sock: socket.socket) -> bool:
    """Whether a read would not block. select(2) takes no descriptor above 1,023."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _query(query: Mapping[str, str] | None) -> str:
    return f"?{urlencode(query)}" if query else ""


def _status_error(response: http.client.HTTPResponse) -> ApiStatusError:
    after = response.headers.get("Retry-After") or ""
    text = response.read().decode(errors="replace")
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text[:200] or response.reason
    return ApiStatusError(response.status, message, float(after) if after.isdecimal() else None)
