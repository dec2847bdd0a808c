"""A proxy before the API server that injects faults: plain HTTP towards the client, TLS and its own login behind."""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hvd_elastic.discovery.kube.api_server import Access


class Refusal(Exception):
    """Answer with this status instead of asking the API server."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        super().__init__(status)


class Cut(Exception):
    """Close the connection."""


class FaultProxy:
    """`before` is asked about each request's path, `between` about each piece of an answer; both may raise, or wait."""

    def __init__(self, behind: Access) -> None:
        self.behind = behind
        self.before: Callable[[str], None] = lambda path: None
        self.between: Callable[[bytes], bytes] = lambda piece: piece
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def access(self) -> Access:
        """How a client gets in."""
        return Access(host="127.0.0.1", port=self._server.server_port)

    def heal(self) -> None:
        """No more faults."""
        self.before, self.between = lambda path: None, lambda piece: piece

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""

    def do_GET(self) -> None:
        self.proxy.requests.append(f"{self.command} {self.path}")
        try:
            self.proxy.before(self.path)
            self._pass_on()
        except Refusal as refusal:
            self.send_response(refusal.status)
            for key, value in {**refusal.headers, "Content-Length": "0"}.items():
                self.send_header(key, value)
            self.end_headers()
        except (Cut, OSError, http.client.HTTPException):
            self.close_connection = True

    do_POST = do_PATCH = do_DELETE = do_GET

    def _pass_on(self) -> None:
        behind = self.proxy.behind.connect()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        headers = {key: value for key, value in self.headers.items() if key in {"Accept", "Content-Type"}}
        if token := self.proxy.behind.token():
            headers["Authorization"] = f"Bearer {token}"
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
