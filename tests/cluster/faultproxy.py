"""A proxy before the API server that injects faults. Whoever brings no token has the proxy's own login behind it."""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hvd_elastic.discovery.kube.api_server import Access
from testbed.kube.certificates import Pair


class Refusal(Exception):
    """Answer with this status instead of asking the API server."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        super().__init__(status)


class Cut(Exception):
    """Close the connection."""


class FaultProxy:
    """`before` is asked about each request's path, `between` about each piece of an answer; both may raise, or wait."""

    def __init__(self, behind: Access, *, address: str = "127.0.0.1", certificate: Pair | None = None) -> None:
        """Serve at an address of this machine, with a certificate, or plain HTTP without one."""
        self.behind = behind
        self.before: Callable[[str], None] = lambda path: None
        self.between: Callable[[bytes], bytes] = lambda piece: piece
        self.requests: list[str] = []
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        self._open: set[socket.socket] = set()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer((address, 0), handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if self._tls and certificate:
            self.show(certificate)
            # Each client's own thread shakes hands: one that says nothing must not keep the others waiting.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def access(self) -> Access:
        """How a client gets in, if there is no certificate."""
        return Access(host="127.0.0.1", port=self.port)

    def fail(self, fault: Exception) -> None:
        """Meet each request with this, from now on; whoever has a connection needs another."""

        def meet(_path: str) -> None:
            raise fault

        self.before = meet
        self.cut()

    def heal(self) -> None:
        """No more faults."""
        self.before, self.between = lambda path: None, lambda piece: piece

    def show(self, certificate: Pair) -> None:
        """Show this certificate, from now on; whoever has a connection needs another."""
        assert self._tls
        self._tls.load_cert_chain(certificate.certificate, certificate.key)
        self.cut()

    def cut(self) -> None:
        """Close the connections of all clients."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultProxy
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.proxy._open.add(self.connection)

    def finish(self) -> None:
        self.proxy._open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""

    def do_GET(self) -> None:
        self.proxy.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        try:
            self.proxy.before(self.path)
            self._pass_on(body)
        except Refusal as refusal:
            self.send_response(refusal.status)
            for key, value in {**refusal.headers, "Content-Length": "0"}.items():
                self.send_header(key, value)
            self.end_headers()
        except (Cut, OSError, http.client.HTTPException):
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _pass_on(self, body: bytes | None) -> None:
        behind = self.proxy.behind.connect()
        passed = {"Accept", "Authorization", "Content-Type"}
        headers = {key: value for key, value in self.headers.items() if key in passed}
        if token := self.proxy.behind.token():
            headers.setdefault("Authorization", f"Bearer {token}")
        with contextlib.closing(behind):
            behind.connect()
            behind.sock.settimeout(60)
            behind.request(self.command, self.path, body, headers)
            self._stream(behind.getresponse())

    def _stream(self, answer: Any) -> None:
        self.send_response(answer.status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(1 << 16):
            piece = self.proxy.between(piece)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


def hold(seconds: float) -> Callable[[Any], Any]:
    """Let nothing through for a while, then everything: a server that hangs."""
    until = time.monotonic() + seconds

    def wait(piece: Any) -> Any:
        time.sleep(max(0.0, until - time.monotonic()))
        return piece

    return wait
