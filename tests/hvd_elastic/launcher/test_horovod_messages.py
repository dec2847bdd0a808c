"""Messages to the launcher cannot run code in it."""

import base64
import contextlib
import json
import os
import pickle
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
from horovod.runner.common.util import secret
from horovod.runner.common.util.network import AckResponse, PingRequest, PingResponse
from horovod.runner.elastic.worker import HostsUpdatedRequest, HostUpdateResult, WorkerNotificationService
from hypothesis import example, given
from hypothesis import strategies as st

from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.horovodrun.horovodrun_rendezvous import WorkerClient
from hvd_elastic.launcher.protocol import horovod_messages, plain_pickle
from hvd_elastic.launcher.protocol.horovod_messages import (
    Form,
    HorovodMessageError,
    HostUnreachableError,
    NoticeStamps,
    Registration,
)
from hvd_elastic.launcher.protocol.plain_pickle import PlainPickleError, load_containers, load_reply
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


def json_body(table: object, key: bytes = KEY) -> bytes:
    """What a worker registers whose Horovod has the patch `worker-addresses`."""
    return json.dumps({"addresses": table, "secret_key": key.hex()}).encode()


def registered(service: WorkerNotificationService) -> Registration:
    """As the installed Horovod registers this service."""
    is_patched = "worker-addresses" in installed_patches()
    table = service.addresses()
    return Registration.parse(json_body(table) if is_patched else body((table, KEY)))


TABLE = {"lo": [("127.0.0.1", 4000)], "eth0": [("10.0.0.7", 4001)]}


@pytest.mark.parametrize(("data", "form"), [(body((TABLE, KEY)), Form.PICKLE), (json_body(TABLE), Form.JSON)])
def test_a_workers_registration_is_read(data: bytes, form: Form) -> None:
    read = Registration.parse(data)
    assert read.addresses == (("127.0.0.1", 4000), ("10.0.0.7", 4001))
    assert read.key == KEY
    assert read.form is form


@pytest.mark.needs_patch("worker-addresses")
def test_what_horovod_registers_in_json_is_read() -> None:
    from horovod.runner.elastic.rendezvous import dumps_worker_addresses

    assert dumps_worker_addresses(TABLE, KEY) == json_body(TABLE)


def test_a_put_that_would_run_code_is_refused(tmp_path: Any) -> None:
    target = tmp_path / "owned"
    with pytest.raises(HorovodMessageError):
        Registration.parse(body(({"lo": [("127.0.0.1", 4000)]}, Evil(str(target)))))
    with pytest.raises(PlainPickleError):
        load_containers(cloudpickle.dumps(lambda: None))
    assert not target.exists()


def into_itself(again: bytes, times: int) -> bytes:
    """A registration whose table has a tuple that is a pair of one and the same, again and again."""
    return b"\x80\x04}X\x01\x00\x00\x00i]X\x01\x00\x00\x00aK\x01\x86" + again * times + b"K\x01\x86asC\x01k\x86."


HOSTILE = {
    "a memo of 16 million": b"\x80\x04N" + b"r" + struct.pack("<I", 16_000_000) + b".",
    "doubled by DUP": into_itself(b"2\x86", 60),
    "doubled by the memo": into_itself(b"\x94h\x00\x86", 1),
    "a tuple of the memo": b"\x80\x04" + b"K\x01K\x02\x86\x94h\x00\x86.",
    "many opcodes": b"\x80\x04]" + b"K\x01a" * 3000 + b".",
    "a text of the memo that is none": b"\x80\x04h\x07.",
    "a class": b"\x80\x04cos\nsystem\n.",
    "a long text": b"\x80\x04X\xff\xff\x01\x00" + b"a" * 0x1FFFF + b".",
    "no end": b"\x80\x04]",
    "a persistent object": b"\x80\x04Pid\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_that_horovod_does_not_write_is_not_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_data: object) -> None:
        raise AssertionError("it was run")

    with monkeypatch.context() as patched:
        patched.setattr(plain_pickle, "_PlainUnpickler", run)
        for load in (load_containers, load_reply):
            with pytest.raises(PlainPickleError) as raised:
                load(HOSTILE[name])
            assert "it was run" not in str(raised.value)
    with pytest.raises(HorovodMessageError):
        Registration.parse(base64.b64encode(HOSTILE[name]))


@given(
    table=st.dictionaries(
        st.text(min_size=1, max_size=15),
        st.lists(st.tuples(st.ip_addresses(v=4).map(str), st.integers(1, 65_535)), min_size=1, max_size=3),
        max_size=20,
    )
)
def test_every_table_that_stock_horovod_registers_is_read(table: dict[str, list[tuple[str, int]]]) -> None:
    address = "127.0.0.1"
    table["lo"] = [(address, 4000)]
    table["lo:1"] = [(address, 4001)]  # the same text: a pickle has it once
    found = dict.fromkeys(pair for pairs in table.values() for pair in pairs)
    for protocol in (4, 5):
        data = base64.b64encode(cloudpickle.dumps((table, KEY), protocol=protocol))
        assert Registration.parse(data).addresses == tuple(found)[:32]
    assert Registration.parse(json_body(table)).addresses == tuple(found)[:32]


@pytest.mark.parametrize(
    "reply",
    [PingResponse("service", "10.0.0.7"), AckResponse(), PingResponse(None, "service")],
    ids=lambda one: type(one).__name__,
)
def test_the_replies_of_stock_horovod_are_read(reply: object) -> None:
    for protocol in (4, 5):
        assert vars(load_reply(cloudpickle.dumps(reply, protocol=protocol))) == vars(reply)


@pytest.mark.parametrize("value", [{}, "PingResponse", PingRequest(), HostsUpdatedRequest(1), ({}, b"")])
def test_what_is_no_reply_is_refused(value: object) -> None:
    with pytest.raises(PlainPickleError):
        load_reply(cloudpickle.dumps(value))


def test_a_worker_has_few_addresses() -> None:
    """Each that does not answer holds the launcher's notices up for two seconds."""
    many = {"a": [["127.0.0.1", 1]] * 3000, "b": [[f"10.0.{n}.1", 1] for n in range(200)]}
    read = Registration.parse(json_body(many))
    assert read.addresses[:2] == (("127.0.0.1", 1), ("10.0.0.1", 1))
    assert len(read.addresses) == 32
    with pytest.raises(HorovodMessageError, match="bytes"):
        Registration.parse(json_body({"a": [["127.0.0.1", 1]] * 60_000}))


@pytest.mark.parametrize(
    "pair", [["h", "1"], [1, 1], ["h", True], ["h", 0], ["h", 65_536], ["h" * 65, 1], ["h", 1.0], "ab"]
)
def test_an_address_is_a_text_and_a_port(pair: object) -> None:
    with pytest.raises(HorovodMessageError, match="not an address"):
        Registration.parse(json_body({"lo": [pair]}))


@pytest.mark.parametrize("value", [None, (1, 2), ({}, "key"), ({"lo": [1]}, KEY), ({"lo": 7}, KEY), "text", (1, 2, 3)])
def test_anything_but_a_registration_is_refused(value: object) -> None:
    with pytest.raises(HorovodMessageError):
        Registration.parse(body(value))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ANY_OBJECT = st.fixed_dictionaries({}, optional={"addresses": JSON_VALUES, "secret_key": JSON_VALUES})


@given(st.binary(max_size=300) | ANY_OBJECT.map(lambda value: json.dumps(value).encode()))
@example(b'{"addresses":' + b"[" * 100_000)
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
    registration = registered(server)
    registration.notify(time.time_ns())
    registration.notify(time.time_ns())
    assert [result for _, result in manager.heard] == [HostUpdateResult.mixed] * 2
    assert manager.heard[0][0] < manager.heard[1][0], "two changes in one second are two"


def test_a_clock_that_is_set_back_hides_no_change(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Horovod's `State.check_host_updates` passes over a stamp that is not above that of the last one."""
    manager, server = service
    stamps, wall = NoticeStamps(), time.time_ns
    client = WorkerClient(registered(server), stamps)
    client.notify_hosts_updated(0, None)
    monkeypatch.setattr(time, "time_ns", lambda: wall() - 3600 * 10**9)
    client.notify_hosts_updated(0, None)
    WorkerClient(registered(server), stamps).notify_hosts_updated(0, None)
    heard = [stamp for stamp, _ in manager.heard]
    assert len(heard) == 3
    assert heard == sorted(set(heard))


def test_horovods_own_service_answers_a_ping_and_a_stopped_one_does_not(service: Any, silent: Registration) -> None:
    manager, server = service
    outcomes: queue.SimpleQueue[tuple[int, PingOutcome]] = queue.SimpleQueue()
    pings = ProcessPings(lambda number, outcome: outcomes.put((number, outcome)))
    for number in range(40):
        pings.ping(number, silent)
    pings.ping(40, registered(server))
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


def signed(message: bytes) -> bytes:
    return bytes(secret.compute_digest(KEY, message)) + len(message).to_bytes(4, "little") + message


@contextlib.contextmanager
def answering(answer: bytes, form: Form, received: list[bytes]) -> Iterator[Registration]:
    """A worker that answers one request with these bytes, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Registration((listener.getsockname(),), KEY, form)
        thread.join()


@pytest.mark.parametrize("form", Form)
def test_a_reply_that_would_run_code_is_refused(tmp_path: Any, form: Form) -> None:
    target = tmp_path / "owned"
    with answering(signed(pickle.dumps(Evil(str(target)))), form, []) as worker, pytest.raises(HorovodMessageError):
        worker.notify(1)
    assert not target.exists()


def test_a_worker_that_registered_in_json_is_notified_in_json() -> None:
    received: list[bytes] = []
    with answering(signed(b'{"type": "AckResponse", "arguments": {}}'), Form.JSON, received) as worker:
        worker.notify(7)
    message = b'{"type": "HostsUpdatedRequest", "arguments": {"timestamp": 7, "res": 3}}'
    assert received == [signed(message)]


@pytest.mark.parametrize("message", [b"{}", b"[]", b'{"type": "HostsUpdatedRequest"}', b"{", b"\xff"])
def test_a_reply_in_json_that_is_none_is_refused(message: bytes) -> None:
    with answering(signed(message), Form.JSON, []) as worker, pytest.raises(HorovodMessageError):
        worker.notify(1)


def test_a_silent_worker_does_not_hold_the_launcher(silent: Registration) -> None:
    with pytest.raises(HorovodMessageError, match="timed out"):
        silent.notify(1)
