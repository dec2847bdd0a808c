"""A proxy in front of a store's server. It injects faults of a network and a store, and adds what moto's S3 lacks.

moto 5.2 checks `If-Match` and `If-None-Match`, but not atomically (two threads may both pass), and it stores a body
even if it does not match its announced SHA-256. S3 does both, and so does the proxy: it sends one conditional write at
a time, and refuses with 400 BadDigest a body that does not match `x-amz-checksum-sha256` or
`x-amz-content-sha256`.
"""

import base64
import hashlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = "<Error><Code>{code}</Code><Message>injected</Message></Error>"


class Fault(StrEnum):
    """What happens to one request and its answer."""

    UNAVAILABLE = "503 before the store sees it"
    THROTTLED = "429 before the store sees it, which asks for a second's time"
    SKEWED = "403 before the store sees it: its clock is another"
    CONFLICT = "409 before the store sees it"
    CUT_REQUEST = "the connection breaks before the store sees it"
    LOST_ANSWER = "the store did it, the connection breaks before the answer"
    TRUNCATED = "the answer's body ends half way"
    FLIPPED_DOWN = "one bit of the answer's body is flipped"
    FLIPPED_UP = "one bit of the request's body is flipped"
    DRIP = "the answer's body comes one byte at a time, without end"
    NO_ETAG = "the store names no version of what it has"
    IGNORE_CONDITIONS = "the store does not know conditional writes"


@dataclass(slots=True)
class Rule:
    """A fault for the requests that match."""

    fault: Fault
    method: str
    path: str
    """Regular expression that is searched in path and query."""
    times: int
    skip: int = 0
    hits: int = 0

    def strikes(self, method: str, path: str) -> bool:
        if method != self.method or not re.search(self.path, path):
            return False
        self.hits += 1
        return self.skip < self.hits <= self.skip + self.times


@dataclass(slots=True)
class Faults:
    """The active rules, and a log of all requests."""

    upstream: tuple[str, int]
    rules: list[Rule] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    conditional: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)
    credential: str = ""
    """Stands in the header of each request that may pass. Others get S3's ExpiredToken, or 401 for a token of OAuth."""

    signature: str = ""
    """Is added to the query in place of that header: the server behind knows nobody who hands out tokens."""
    page: str = ""
    """Is added to the query of each listing: how many it names."""

    def add(self, fault: Fault, method: str, path: str, *, times: int = 1, skip: int = 0) -> Rule:
        rule = Rule(fault=fault, method=method, path=path, times=times, skip=skip)
        with self.lock:
            self.rules.append(rule)
        return rule

    def clear(self) -> None:
        with self.lock:
            self.rules.clear()
            self.log.clear()
            self.credential = self.signature = self.page = ""

    def choose(self, method: str, path: str) -> Fault | None:
        with self.lock:
            self.log.append((method, path))
            return next((rule.fault for rule in self.rules if rule.strikes(method, path)), None)


def flip(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 0x10]) + body[middle + 1 :]


def announced_digest_differs(headers: Message, body: bytes) -> bool:
    digest = hashlib.sha256(body)
    checksum, signed = headers.get("x-amz-checksum-sha256"), headers.get("x-amz-content-sha256", "")
    if checksum and checksum != base64.b64encode(digest.digest()).decode():
        return True
    return len(signed) == 64 and signed != digest.hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: Faults

    def handle_one(self) -> None:
        fault = self.faults.choose(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        match fault:
            case Fault.UNAVAILABLE:
                return self.answer(503, BODY.format(code="SlowDown").encode())
            case Fault.THROTTLED:
                return self.answer(429, BODY.format(code="SlowDown").encode(), [("Retry-After", "1")])
            case Fault.SKEWED:
                return self.answer(403, BODY.format(code="RequestTimeTooSkewed").encode())
            case Fault.CONFLICT:
                return self.answer(409, BODY.format(code="ConditionalRequestConflict").encode())
            case Fault.CUT_REQUEST:
                return self.cut()
            case Fault.FLIPPED_UP:
                body = flip(body)
            case Fault.IGNORE_CONDITIONS:
                del self.headers["If-None-Match"], self.headers["If-Match"]
                self.path = re.sub("&?ifGenerationMatch=[0-9]+", "", self.path)
        if self.faults.credential not in self.headers.get("Authorization", ""):
            status = 401 if "Bearer" in self.faults.credential else 400
            return self.answer(status, BODY.format(code="ExpiredToken").encode())
        if announced_digest_differs(self.headers, body):
            return self.answer(400, BODY.format(code="BadDigest").encode())
        status, headers, content = self.forward(body)
        return self.deliver(fault, status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        conditional = "If-None-Match" in self.headers or "If-Match" in self.headers
        if conditional and self.command == "PUT":
            with self.faults.conditional:
                return self.exchange(body)
        return self.exchange(body)

    def exchange(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        if "prefix=" in self.path and self.faults.page:
            self.path += f"&{self.faults.page}"
        if self.faults.signature:
            del self.headers["Authorization"]
            self.path += f"{'&' if '?' in self.path else '?'}{self.faults.signature}"
        upstream = http.client.HTTPConnection(*self.faults.upstream, timeout=20)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in {"expect", "connection"}}
        try:
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def deliver(self, fault: Fault | None, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        match fault:
            case Fault.LOST_ANSWER:
                self.cut()
            case Fault.TRUNCATED:
                self.answer(status, content, headers, send=content[: len(content) // 2])
                self.cut()
            case Fault.FLIPPED_DOWN:
                self.answer(status, flip(content), headers)
            case Fault.NO_ETAG:
                self.answer(status, content, [one for one in headers if one[0].lower() != "etag"])
            case Fault.DRIP:
                self.answer(status, content, headers, send=b"")
                self.drip(content)
            case _:
                self.answer(status, content, headers)

    def answer(
        self, status: int, content: bytes, headers: list[tuple[str, str]] | None = None, send: bytes | None = None
    ) -> None:
        self.send_response(status)
        length = str(len(content))
        for name, value in headers or []:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content if send is None else send)

    def drip(self, content: bytes) -> None:
        for byte in content:
            if self.faults.stopping.wait(0.05):
                break
            try:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
            except OSError:
                break
        self.close_connection = True

    def cut(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: the tests disconnect clients."""


@contextmanager
def proxy(
    upstream: tuple[str, int], *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, Faults]]:
    faults = Faults(upstream=upstream)
    server = Server(("127.0.0.1", port), type("Bound", (Handler,), {"faults": faults}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", faults
    finally:
        faults.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def wait_for(condition: object, *, seconds: float = 10.0) -> None:
    """Wait until a callable is true."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)
