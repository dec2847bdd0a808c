"""An HTTP server for metrics and health that costs a bounded number of threads, whoever connects to it."""

import contextlib
import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Any, Final

MAX_CONNECTIONS: Final = 16
"""At a time, each with a thread. A scrape or a probe takes milliseconds; one more closes the oldest."""
_END_SECONDS: Final = 1.0
"""How long a connection that gives way may take. Its thread is busy with an answer; the next one waits for it."""


class BoundedHTTPServer(ThreadingHTTPServer):
    """Serves MAX_CONNECTIONS connections at a time. The oldest gives way, so idle ones keep nobody out."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        """The oldest first."""
        self._ended = threading.Condition()
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
        """Print what went wrong with a request, unless the client has gone: that is its own affair."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the peer has gone, and the thread knows it
            connection.shutdown(socket.SHUT_RDWR)
        self._ended.wait_for(lambda: connection not in self._open, _END_SECONDS)
        self._open.pop(connection, None)
