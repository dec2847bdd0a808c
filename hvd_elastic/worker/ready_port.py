"""READY_PORT: open only while this worker is usable. It answers each connection and accepts requests.

The port is bound before the script runs and stays so, or a script that binds it (a port of its own choice, another
service of the image) would stand where the kubelet and discovery look for the worker. While it is closed the socket
does not listen, so connections are refused, and it has no SO_REUSEADDR, with which another socket could share the port.
"""

import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from hvd_elastic.system import job_key
from hvd_elastic.worker.event_loop import EventLoop, Timer

log = logging.getLogger(__name__)

_BACKLOG: Final = 128
_CONNECTIONS: Final = 64
"""Connections at a time; one more closes the oldest. A reach test needs one, for a millisecond."""

_REQUEST_TIMEOUT_SECONDS: Final = 2.0
"""Upper bound on the wait for a connection's request."""

_REQUEST_BYTES: Final = 1024
_CHALLENGE: Final = b"challenge"
_RETRY_SECONDS: Final = 0.25


class ReadyPort:
    """Listens while it is open. Each connection gets `answer()` at once, and `on_request(line, nonce)` for its request.

    `nonce` is what the connection was given when it asked for a challenge first; empty if it did not.
    """

    def __init__(
        self,
        loop: EventLoop,
        *,
        address: str | None,
        port: int,
        answer: Callable[[], bytes],
        on_request: Callable[[str, str], bytes],
    ) -> None:
        self._loop = loop
        self._address = address
        self._port = port
        self._answer = answer
        self._on_request = on_request
        self._listener: socket.socket | None = None
        """Bound as soon as the port was free."""
        self._is_open = False
        self._retry: Timer | None = None
        self._connections: dict[int, _Connection] = {}

    @property
    def is_open(self) -> bool:
        return self._is_open

    def reserve(self) -> None:
        """Take the port, so that nobody else can. If it is taken already, log that; `open` tries again."""
        try:
            self._bind()
        except OSError as error:
            log.warning("the readiness port %s is taken: %s", self._port, error.strerror)

    def open(self) -> None:
        """Listen. If the port is taken, log that and try again until it is free."""
        if self._is_open:
            return
        try:
            listener = self._bind()
            # So that connections of an earlier opening, which linger, do not stand in the way.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.listen(_BACKLOG)
        except OSError as error:
            self._try_later(error)
            return
        self._cancel_retry()
        self._is_open = True
        self._loop.watch(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening: connections are refused from now on. The port stays taken."""
        self._cancel_retry()
        if self._is_open:
            assert self._listener is not None
            self._is_open = False
            self._loop.forget(self._listener.fileno())
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        for connection in list(self._connections.values()):
            self._drop(connection)

    def release(self) -> None:
        """Close the port and give it up."""
        self.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _bind(self) -> socket.socket:
        if self._listener is None:
            self._listener = bind(self._address, self._port)
            self._listener.setblocking(False)
        return self._listener

    def _try_later(self, error: OSError) -> None:
        if self._retry is None:
            log.warning("the readiness port %s cannot be opened yet: %s", self._port, error.strerror)
        self._retry = self._loop.after(_RETRY_SECONDS, self.open)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            if self._listener is None or not self._is_open:
                return
            try:
                connected, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._out_of_descriptors(error)
                return
            self._serve(connected)

    def _out_of_descriptors(self, error: OSError) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE) and self._connections:
            self._drop(next(iter(self._connections.values())))

    def _serve(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        if len(self._connections) >= _CONNECTIONS:
            self._drop(next(iter(self._connections.values())))
        try:
            # Or the answer to a request could wait 40 ms for the client to acknowledge the first line.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.send(self._answer())
        except OSError:
            connected.close()
            return
        connection = _Connection(connected)
        connection.timer = self._loop.after(_REQUEST_TIMEOUT_SECONDS, lambda: self._drop(connection))
        self._connections[connected.fileno()] = connection
        self._loop.watch(connected.fileno(), lambda: self._read(connection))

    def _read(self, connection: "_Connection") -> None:
        try:
            data = connection.socket.recv(_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.received += data
        line, newline, rest = connection.received.partition(b"\n")
        if newline and line == _CHALLENGE and not connection.nonce:
            connection.nonce, connection.received = job_key.new_nonce(), rest
            self._send(connection, f"{connection.nonce}\n".encode())
            line, newline, _ = rest.partition(b"\n")
        if newline and (answer := self._on_request(line.decode(errors="replace").strip(), connection.nonce)):
            self._send(connection, answer)
        if not data or newline or len(connection.received) >= _REQUEST_BYTES:
            self._drop(connection)

    def _send(self, connection: "_Connection", answer: bytes) -> None:
        """Send it in one call: a client that does not read gets what fits the buffer."""
        with contextlib.suppress(OSError):
            connection.socket.send(answer)

    def _drop(self, connection: "_Connection") -> None:
        if self._connections.pop(connection.socket.fileno(), None) is not None:
            self._loop.forget(connection.socket.fileno())
        if connection.timer is not None:
            connection.timer.cancel()
        connection.socket.close()


class _Connection:
    __slots__ = ("nonce", "received", "socket", "timer")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.received = b""
        self.nonce = ""
        self.timer: Timer | None = None


def bind(address: str | None, port: int) -> socket.socket:
    """Bind to `address`. None: to all interfaces, by IPv6 and IPv4 if the kernel has both. Raises OSError."""
    if address is not None:
        return _bound(socket.AF_INET6 if ":" in address else socket.AF_INET, address, port)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _bound(socket.AF_INET6, "", port)
    return _bound(socket.AF_INET, "", port)


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            bound.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # Connections of an earlier entry point at this address linger; a process that listens is still refused.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((address, port))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        bound.close()
        raise
    return bound
