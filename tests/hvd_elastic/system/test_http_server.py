"""Metrics and health are answered, and cost a bounded number of threads, whoever connects."""

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from hvd_elastic.system.http_server import MAX_CONNECTIONS, BoundedHTTPServer, RoutesServer, ServedPage
from tests.hvd_elastic.worker.pods import eventually
from tests.ipv6 import needs_ipv6


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def server() -> Iterator[BoundedHTTPServer]:
    served = BoundedHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()


def get(server: BoundedHTTPServer) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().read()


def test_idle_connections_cost_a_bounded_number_of_threads_and_keep_nobody_out(server: BoundedHTTPServer) -> None:
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        for _ in range(10 * MAX_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=60))
        assert get(server) == b"ok"
        assert threading.active_count() <= before + MAX_CONNECTIONS


def test_the_oldest_connection_gives_way(server: BoundedHTTPServer) -> None:
    address = ("127.0.0.1", server.server_port)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(MAX_CONNECTIONS)]
        assert get(server) == b"ok"
        assert held[0].recv(1) == b""
        held[-1].sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert held[-1].recv(12) == b"HTTP/1.1 200"


def test_a_client_that_goes_before_its_answer_is_not_worth_a_line(
    server: BoundedHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it is reset, not ended
    connection.sendall(b"GET /")
    connection.close()
    assert get(server) == b"ok"
    eventually(lambda: not server._open, "both have ended")
    assert capfd.readouterr().err == ""


def test_connections_that_end_make_room(server: BoundedHTTPServer) -> None:
    kept = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    kept.request("GET", "/")
    assert kept.getresponse().read() == b"ok"
    for _ in range(3 * MAX_CONNECTIONS):
        assert get(server) == b"ok"
    kept.close()


@needs_ipv6
@pytest.mark.parametrize(
    ("address", "reached"), [("", ["127.0.0.1", "::1"]), ("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"])]
)
def test_without_an_address_it_answers_by_ipv4_and_ipv6(address: str, reached: list[str]) -> None:
    """A kubelet probes the first address of a pod, which may be of either kind."""
    server = RoutesServer({"/": lambda: ServedPage(body=b"here")}, port=0, address=address)
    server.start()
    try:
        for each in reached:
            with contextlib.closing(http.client.HTTPConnection(each, server.port, timeout=60)) as connection:
                connection.request("GET", "/")
                assert connection.getresponse().read() == b"here"
    finally:
        server.stop()
