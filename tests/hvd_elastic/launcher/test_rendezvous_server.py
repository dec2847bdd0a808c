"""The server, over HTTP, as workers and Horovod's C++ side use it."""

import base64
import http.client
import threading
from collections.abc import Iterator

import cloudpickle
import pytest
from horovod.runner.http.http_client import put_data_into_kvstore

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.hosts.slot_placement import SlotKey, place
from hvd_elastic.launcher.protocol.horovod_messages import Registration
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer


class Requests:
    def __init__(self) -> None:
        self.registered: dict[SlotKey, Registration] = {}
        self.initialised: list[int] = []
        self.has_synced: list[SlotKey] = []
        self.meeting = threading.Barrier(64)
        self.is_held, self.holds = threading.Event(), threading.Event()
        self.holds.set()

    def request_place(self, key: SlotKey) -> str | None:
        return f"0,1,{key[1]},1,0,1"

    def wait_at_barrier(self, key: SlotKey) -> str | None:
        self.meeting.wait(20)
        return "go"

    def synced(self, key: SlotKey) -> str | None:
        self.has_synced.append(key)
        return ""

    def register(self, key: SlotKey, registration: Registration) -> None:
        self.registered[key] = registration

    def initialising(self, rank: int) -> None:
        self.is_held.set()
        self.holds.wait(20)
        self.initialised.append(rank)


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def server(requests: Requests) -> Iterator[RendezvousServer]:
    server = RendezvousServer("127.0.0.1", requests)
    server.start()
    server.form(place([Host(alias="a", address="x", slots=2)], None))
    yield server
    server.close()


def ask(server: RendezvousServer, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_place_is_answered_in_horovods_form(server: RendezvousServer) -> None:
    assert ask(server, "GET", "/rank_and_size/uid-1:3") == (200, b"0,1,3,1,0,1")


@pytest.mark.parametrize("path", ["/rank_and_size/x", "/rank_and_size/a:b", "/join/..:1", "/nothing/here"])
def test_an_unknown_path_is_not_found(server: RendezvousServer, path: str) -> None:
    assert ask(server, "GET", path)[0] == 404


def test_sixty_four_workers_wait_at_once(server: RendezvousServer) -> None:
    """Horovod's server listens with a backlog of 5: most of them would wait until TCP tries again."""
    answers: list[tuple[int, bytes]] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(server, "GET", f"/join/h{n}:0"))) for n in range(64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [(200, b"go")] * 64


def test_horovods_own_client_registers_and_the_key_cannot_be_read_back(
    server: RendezvousServer, requests: Requests
) -> None:
    value = ({"lo": [("127.0.0.1", 5)]}, b"key")
    put_data_into_kvstore("127.0.0.1", server.port, "worker_addresses", "uid-1:0", value)
    assert requests.registered["uid-1", 0].key == b"key"
    assert ask(server, "GET", "/worker_addresses/uid-1:0")[0] == 404


def test_a_hostile_registration_is_refused(server: RendezvousServer, requests: Requests) -> None:
    body = base64.b64encode(cloudpickle.dumps(lambda: None))
    assert ask(server, "PUT", "/worker_addresses/uid-1:0", body)[0] == 200
    assert not requests.registered


def test_gloos_store(server: RendezvousServer, requests: Requests) -> None:
    assert ask(server, "GET", "/global/0")[0] == 404
    assert ask(server, "PUT", "/global/0", b"address")[0] == 200
    assert ask(server, "GET", "/global/0") == (200, b"address")
    assert requests.initialised == [0]
    server.form(place([Host(alias="a", address="x", slots=2)], None))
    assert ask(server, "GET", "/global/0")[0] == 404, "nothing of the last world is left"


def test_a_worker_is_held_inside_init_and_what_it_says_belongs_to_the_world_that_it_waited_for(
    server: RendezvousServer, requests: Requests
) -> None:
    requests.holds.clear()
    worker = threading.Thread(target=ask, args=(server, "PUT", "/global/0", b"address"))
    worker.start()
    assert requests.is_held.wait(20)
    server.form(place([Host(alias="a", address="x", slots=2)], None))
    requests.holds.set()
    worker.join(20)
    assert ask(server, "GET", "/global/0") == (200, b"address")


def test_a_broken_world_fails_at_once(server: RendezvousServer) -> None:
    ask(server, "PUT", "/global/0", b"address")
    server.broken = True
    for scope in ("global", "local_a", "cross_0"):
        assert ask(server, "GET", f"/{scope}/0")[0] == 410
    assert ask(server, "GET", "/rank_and_size/a:0")[0] == 200


def test_a_body_without_end_is_not_taken(server: RendezvousServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("PUT", "/global/0")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
