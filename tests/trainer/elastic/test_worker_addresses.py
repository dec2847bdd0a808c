"""Nobody who merely reaches the ports of Horovod's own launcher, or of its workers, runs code there.

The rendezvous server, the driver behind it and the workers' notification service are Horovod's.
"""

import base64
import contextlib
import http.client
import json
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from horovod.runner.common.util import secret
from horovod.runner.elastic.discovery import FixedHosts
from horovod.runner.elastic.driver import ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager
from horovod.runner.http.http_server import RendezvousServer

PATH = "/worker_addresses/localhost:0"
KEY = b"k" * 32


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


class Launcher:
    """The parts of `horovodrun` that workers and strangers reach."""

    def __init__(self) -> None:
        server = RendezvousServer()
        self.driver = ElasticDriver(server, FixedHosts({"localhost": 1}), min_num_proc=1, max_num_proc=1)
        self.port: int = server.start(create_rendezvous_handler(self.driver))

    def ask(self, method: str, body: bytes | None = None) -> int:
        """The status of a request for one worker's addresses; 0 if there is no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection), contextlib.suppress(ConnectionError, http.client.HTTPException):
            connection.request(method, PATH, body)
            return connection.getresponse().status
        return 0

    @property
    def client(self) -> Any:
        """What notifies the worker; None if none has registered."""
        return self.driver._worker_clients.get(("localhost", 0))


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.driver.stop()


class Worker:
    """A real worker as far as it registers and is notified."""

    def __init__(self, launcher: Launcher) -> None:
        self.heard: list[tuple[int, object]] = []
        self.manager = WorkerNotificationManager()
        self.manager.register_listener(self)
        self.manager.init("127.0.0.1", launcher.port, "lo", "localhost", 0)

    def on_hosts_updated(self, timestamp: int, result: object) -> None:
        self.heard.append((timestamp, result))


@pytest.fixture
def worker(launcher: Launcher) -> Iterator[Worker]:
    worker = Worker(launcher)
    yield worker
    worker.manager._service.shutdown()


def signed(key: bytes, message: bytes) -> bytes:
    return bytes(secret.compute_digest(key, message)) + struct.pack("i", len(message)) + message


@pytest.fixture
def replies() -> Iterator[Callable[[bytes], int]]:
    """A made-up worker: answers each connection with these bytes; the function returns its port."""
    with contextlib.ExitStack() as stack:

        def serve(reply: bytes) -> int:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=answer, args=(listener, reply), daemon=True).start()
            return int(listener.getsockname()[1])

        def answer(listener: socket.socket, reply: bytes) -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(reply)

        yield serve


def test_a_real_workers_registration_arrives_and_it_is_notified(launcher: Launcher, worker: Worker) -> None:
    launcher.client.notify_hosts_updated(7, HostUpdateResult.removed)
    assert worker.heard == [(7, HostUpdateResult.removed)]
    assert isinstance(worker.heard[0][1], HostUpdateResult)


@pytest.mark.needs_patch("worker-addresses")
def test_a_registration_cannot_carry_code(launcher: Launcher, tmp_path: Path) -> None:
    status = launcher.ask("PUT", base64.b64encode(pickle.dumps(Evil(tmp_path / "owned"))))
    assert not (tmp_path / "owned").exists()
    assert status == http.client.BAD_REQUEST


@pytest.mark.needs_patch("worker-addresses")
def test_the_reply_of_a_made_up_worker_cannot_carry_code(
    launcher: Launcher, replies: Callable[[bytes], int], tmp_path: Path
) -> None:
    """The launcher connects to what is registered, and the reply is signed with the key that was registered."""
    port = replies(signed(KEY, pickle.dumps(Evil(tmp_path / "owned"))))
    launcher.ask("PUT", json.dumps({"addresses": {"lo": [["127.0.0.1", port]]}, "secret_key": KEY.hex()}).encode())
    launcher.ask("PUT", base64.b64encode(pickle.dumps(({"lo": [("127.0.0.1", port)]}, KEY))))
    assert not (tmp_path / "owned").exists()


@pytest.mark.needs_patch("worker-addresses")
def test_a_signed_notification_cannot_carry_code(worker: Worker, tmp_path: Path) -> None:
    """Its key has travelled in the clear."""
    service = worker.manager._service
    with socket.create_connection(("127.0.0.1", service.get_port()), timeout=30) as connection:
        connection.sendall(signed(service._wire._key, pickle.dumps(Evil(tmp_path / "owned"))))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65536)
    assert not (tmp_path / "owned").exists()


@pytest.mark.needs_patch("worker-addresses")
def test_the_key_of_a_worker_cannot_be_read_back(launcher: Launcher, worker: Worker) -> None:
    assert launcher.client is not None
    assert not worker.heard
    assert launcher.ask("GET") == http.client.NOT_FOUND


@pytest.mark.needs_patch("worker-addresses")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"addresses": {}}',
        b'{"addresses": [], "secret_key": ""}',
        b'{"addresses": {"lo": [["127.0.0.1", Infinity]]}, "secret_key": ""}',
        b'{"addresses": {"lo": [7]}, "secret_key": ""}',
        b'{"addresses": {}, "secret_key": 7}',
    ],
)
def test_anything_but_addresses_is_refused(launcher: Launcher, body: bytes) -> None:
    assert launcher.ask("PUT", body) == http.client.BAD_REQUEST
    assert launcher.client is None
