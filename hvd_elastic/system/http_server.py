"""An HTTP server for metrics and health that costs a bounded number of threads, whoever connects to it."""

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from hvd_elastic.system.background_threads import ErrorLog, start_thread

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 16
"""At a time, each with a thread. A scrape or a probe takes milliseconds; one more closes the oldest."""
_END_SECONDS: Final = 1.0
"""How long a connection that gives way may take. Its thread is busy with an answer; the next one waits for it."""
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What prometheus_client's `generate_latest` writes for names that fit the classic format. Newer releases of it
announce version 1.0.0 as their latest, which scrapers of today may not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPage:
    """What a GET is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = METRICS_TYPE


_NOT_HERE: Final = ServedPage(body=b"not here\n", status=HTTPStatus.NOT_FOUND)


class BoundedHTTPServer(ThreadingHTTPServer):
    """Serves MAX_CONNECTIONS connections at a time. The oldest gives way, so idle ones keep nobody out."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        """The oldest first."""
        self._ended = threading.Condition()
        self._errors = ErrorLog(log)
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, once there is room for it."""
        with self._ended:
            while len(self._open) >= MAX_CONNECTIONS:
                self._drop(next(iter(self._open)))
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection; its thread ends with it."""
        super().shutdown_request(request)
        with self._ended:
            self._open.pop(request, None)
            self._ended.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong with a request, unless the client has gone: that is its own affair."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self._errors.say("a request for metrics or health failed", error)

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the peer has gone, and the thread knows it
            connection.shutdown(socket.SHUT_RDWR)
        self._ended.wait_for(lambda: connection not in self._open, _END_SECONDS)
        self._open.pop(connection, None)


class RoutesServer(BoundedHTTPServer):
    """Answers GET by path, in threads of its own once `start` was called."""

    def __init__(self, routes: Mapping[str, Callable[[], ServedPage]], *, port: int, address: str = "") -> None:
        """Bind; `port` 0 takes a free one. Raises OSError, and OverflowError for what is no port.

        Without an address on all interfaces, by IPv6 and IPv4 if the kernel has both.
        """
        if ":" in address or (not address and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        super().__init__((address, port), _handler(routes))

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve in a thread."""
        start_thread("metrics", self.serve_forever, log=log)

    def stop(self) -> None:
        """Stop serving and free the port."""
        self.shutdown()
        self.server_close()


def _handler(routes: Mapping[str, Callable[[], ServedPage]]) -> type[BaseHTTPRequestHandler]:
    class RoutesHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = routes.get(self.path, lambda: _NOT_HERE)()
            with contextlib.suppress(ConnectionError):  # a client that did not wait for the answer
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            """Probes and scrapes come all the time and are not worth a line."""

    return RoutesHandler
