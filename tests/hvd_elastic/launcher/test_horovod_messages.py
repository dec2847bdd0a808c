"""Messages to the launcher cannot run code in it."""

import base64
import contextlib
import os
import pickle
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationService
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.protocol import horovod_messages
from hvd_elastic.launcher.protocol.horovod_messages import (
    HorovodMessageError,
    HostUnreachableError,
    Registration,
    load_plain,
)
from hvd_elastic.launcher.protocol.process_pings import ProcessPings

KEY = b"k" * 32


class Evil:
    """Runs code when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (self.path,)


def body(value: object) -> bytes:
    return base64.b64encode(cloudpickle.dumps(value))


def test_a_workers_registration_is_read() -> None:
    read = Registration.parse(body(({"lo": [("127.0.0.1", 4000)], "eth0": [("10.0.0.7", 4001)]}, KEY)))
    assert read.addresses == (("127.0.0.1", 4000), ("10.0.0.7", 4001))
    assert read.key == KEY


def test_a_put_that_would_run_code_is_refused(tmp_path: Any) -> None:
    target = tmp_path / "owned"
    with pytest.raises(HorovodMessageError):
        Registration.parse(body(({"lo": [("127.0.0.1", 4000)]}, Evil(str(target)))))
    with pytest.raises(HorovodMessageError):
        load_plain(cloudpickle.dumps(lambda: None))
    assert not target.exists()


@pytest.mark.parametrize("value", [None, (1, 2), ({}, "key"), ({"lo": [1]}, KEY), ({"lo": 7}, KEY), "text", (1, 2, 3)])
def test_anything_but_a_registration_is_refused(value: object) -> None:
    with pytest.raises(HorovodMessageError):
        Registration.parse(body(value))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_one_error(data: bytes) -> None:
    with contextlib.suppress(HorovodMessageError):
        Registration.parse(data)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registration]:
    """A stopped process: the kernel accepts connections for it."""
    monkeypatch.setattr(horovod_messages, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Registration((listener.getsockname(),), KEY)


class Manager:
    def __init__(self) -> None:
        self.heard: list[tuple[int, object]] = []

    def handle_hosts_updated(self, timestamp: int, result: object) -> None:
        self.heard.append((timestamp, result))


@pytest.fixture
def service() -> Iterator[tuple[Manager, WorkerNotificationService]]:
    manager = Manager()
    service = WorkerNotificationService(KEY, "lo", manager)
    yield manager, service
    service.shutdown()


def test_horovods_own_service_understands_the_notification(service: Any) -> None:
    manager, server = service
    registration = Registration.parse(body((server.addresses(), KEY)))
    registration.notify(time.time_ns())
    registration.notify(time.time_ns())
    assert [result for _, result in manager.heard] == [HostUpdateResult.mixed] * 2
    assert manager.heard[0][0] < manager.heard[1][0], "two changes in one second are two"


def test_horovods_own_service_answers_a_ping_and_a_stopped_one_does_not(service: Any, silent: Registration) -> None:
    manager, server = service
    outcomes: queue.SimpleQueue[tuple[int, PingOutcome]] = queue.SimpleQueue()
    pings = ProcessPings(lambda number, outcome: outcomes.put((number, outcome)))
    for number in range(40):
        pings.ping(number, silent)
    pings.ping(40, Registration.parse(body((server.addresses(), KEY))))
    expected = dict.fromkeys(range(40), PingOutcome.SILENT) | {40: PingOutcome.ANSWERED}
    assert dict(outcomes.get(timeout=30) for _ in range(41)) == expected
    assert not manager.heard, "a ping is no notification"


def test_a_ping_tells_a_lost_host_from_a_silent_process(silent: Registration) -> None:
    """A full queue drops what would open another connection, as a lost host does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        with contextlib.suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(listener.getsockname(), timeout=0.3))
        lost = Registration((listener.getsockname(),), KEY)
        with pytest.raises(HostUnreachableError):
            lost.ping()
        with pytest.raises(HorovodMessageError) as raised:
            Registration((*silent.addresses, *lost.addresses), KEY).ping()
        assert not isinstance(raised.value, HostUnreachableError), "one of its addresses is there"
    with pytest.raises(HorovodMessageError, match="refused"):
        lost.ping()


def test_a_reply_that_would_run_code_is_refused(tmp_path: Any) -> None:
    target = tmp_path / "owned"
    message = pickle.dumps(Evil(str(target)))
    from horovod.runner.common.util import secret

    answer = secret.compute_digest(KEY, message) + len(message).to_bytes(4, "little") + message
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(HorovodMessageError):
            Registration((listener.getsockname(),), KEY).notify(1)
        thread.join()
    assert not target.exists()


def test_a_silent_worker_does_not_hold_the_launcher(silent: Registration) -> None:
    with pytest.raises(HorovodMessageError, match="timed out"):
        silent.notify(1)
