"""The server, over HTTP, as workers and Horovod's C++ side use it."""

import base64
import contextlib
import http.client
import pickle
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from horovod.runner.common.util import codec
from horovod.runner.http.http_client import put_data_into_kvstore

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import SlotKey, place
from hvd_elastic.launcher.protocol import rendezvous_server
from hvd_elastic.launcher.protocol.gloo_store import VALUE_LIMIT_BYTES, GlooStore, GlooStoreFullError
from hvd_elastic.launcher.protocol.horovod_messages import Registration
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer, Reply
from hvd_elastic.launcher.script_reports import ScriptReports
from hvd_elastic.mpijob.contract import (
    FIGURES_EXPECTED_KEY,
    FIGURES_MAX_BYTES,
    FIGURES_SCOPE,
    LAST_FIGURES_FILE,
    LAST_FIGURES_KEY,
    REGISTERED_FILE,
    WriterAnswer,
)
from hvd_elastic.system import descriptors
from tests.ipv6 import needs_ipv6

WORD = "the job's word"
OURS = {"X-Horovod-Token": WORD}
"""What this project's workers show."""
PATCHED = {**OURS, "X-Horovod-Shows-Token": "1"}
"""What they say if their Horovod shows the token as well."""
STOCK: dict[str, str] = {}
STRANGER = {"X-Horovod-Token": "a guess"}


class Requests:
    def __init__(self) -> None:
        self.registered: dict[SlotKey, Registration] = {}
        self.proven: list[bool] = []
        self.places_asked: list[SlotKey] = []
        self.initialised: list[int] = []
        self.has_synced: list[SlotKey] = []
        self.meet = 64
        """So many come to the barrier before any of them is answered."""
        self.waiting: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.held: queue.Queue[Reply] | None = None
        """Those inside init, if they are held."""

    def request_place(self, key: SlotKey, reply: Reply) -> None:
        self.places_asked.append(key)
        reply(f"0,1,{key[1]},1,0,1")

    def wait_at_barrier(self, key: SlotKey, reply: Reply) -> None:
        self.waiting.put(reply)
        if self.waiting.qsize() == self.meet:
            for _ in range(self.meet):
                self.waiting.get()("go")

    def synced(self, key: SlotKey) -> None:
        self.has_synced.append(key)

    def ask_for_writer(self, key: SlotKey, reply: Reply) -> None:
        reply(WriterAnswer.YES if key[1] == 0 else WriterAnswer.NO)

    def register(self, key: SlotKey, registration: Registration, *, proven: bool) -> None:
        self.proven.append(proven)
        self.registered[key] = registration

    def initialising(self, rank: int, reply: Reply) -> None:
        self.initialised.append(rank)
        if self.held is None:
            reply("")
        else:
            self.held.put(reply)


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def server(requests: Requests, tmp_path: Path) -> Iterator[RendezvousServer]:
    server = RendezvousServer("127.0.0.1", requests, token=WORD, reports=ScriptReports(tmp_path))
    server.start()
    server.form(place([Host(alias="a", address="x", slots=2)], None))
    yield server
    server.stop()


def ask(
    server: RendezvousServer, method: str, path: str, body: bytes | None = None, headers: dict[str, str] = STOCK
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_place_is_answered_in_horovods_form(server: RendezvousServer) -> None:
    assert ask(server, "GET", "/rank_and_size/uid-1:3") == (200, b"0,1,3,1,0,1")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_without_an_address_it_listens_by_ipv4_and_ipv6(
    requests: Requests, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    server = RendezvousServer("", requests, token=WORD)
    server.start()
    try:
        with (
            caplog.at_level("DEBUG"),
            contextlib.closing(http.client.HTTPConnection(host, server.port, timeout=30)) as connection,
        ):
            connection.request("GET", "/join/a:0")
            assert connection.getresponse().status == 403
    finally:
        server.stop()
    assert f"refused GET /join/a:0 from {host}" in caplog.messages


@pytest.mark.parametrize("path", ["/rank_and_size/x", "/rank_and_size/a:b", "/join/..:1", "/nothing/here"])
def test_an_unknown_path_is_not_found(server: RendezvousServer, path: str) -> None:
    assert ask(server, "GET", path, headers=OURS)[0] == 404


def test_sixty_four_workers_wait_at_once(server: RendezvousServer) -> None:
    """Horovod's server listens with a backlog of 5: most of them would wait until TCP tries again."""
    answers: list[tuple[int, bytes]] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(server, "GET", f"/join/h{n}:0", headers=OURS)))
        for n in range(64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [(200, b"go")] * 64


def test_a_request_that_waits_holds_no_thread(server: RendezvousServer, requests: Requests) -> None:
    requests.meet = 200
    before = threading.active_count()
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(requests.meet)]
    for number, connection in enumerate(connections[1:]):
        connection.request("GET", f"/join/h{number}:0", headers=OURS)
    assert ask(server, "GET", "/rank_and_size/a:0", headers=OURS)[0] == 200, "nor the server"
    assert threading.active_count() == before
    connections[0].request("GET", "/join/last:0", headers=OURS)
    assert [connection.getresponse().read() for connection in connections] == [b"go"] * requests.meet
    for connection in connections:
        connection.close()


def test_a_server_that_stops_has_sent_its_answers_and_resets_what_waits(requests: Requests) -> None:
    server = RendezvousServer("127.0.0.1", requests, token=WORD)
    server.start()
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(2)]
    for number, connection in enumerate(connections):
        connection.request("GET", f"/join/a:{number}", headers=OURS)
    replies = [requests.waiting.get(timeout=20) for _ in connections]
    replies[0]("again")
    server.stop()
    assert {outcome(connection) for connection in connections} == {b"again", None}


def test_a_request_that_fails_is_said_and_others_are_served(
    server: RendezvousServer, requests: Requests, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("nobody has foreseen")

    monkeypatch.setattr(requests, "request_place", fail)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/rank_and_size/a:0")
    assert outcome(connection) is None
    assert [record.getMessage()[:51] for record in caplog.records] == [
        "a request of 127.0.0.1 failed: KeyError: 'nobody ha"
    ]
    assert ask(server, "GET", "/global/0")[0] == 404


def outcome(connection: http.client.HTTPConnection) -> bytes | None:
    """What has been answered; None if the connection was closed without a word."""
    with contextlib.closing(connection):
        try:
            return connection.getresponse().read()
        except ConnectionError:
            return None


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
    requests.held = queue.Queue()
    worker = threading.Thread(target=ask, args=(server, "PUT", "/global/0", b"address"))
    worker.start()
    reply = requests.held.get(timeout=20)
    server.form(place([Host(alias="a", address="x", slots=2)], None))
    reply("")
    worker.join(20)
    assert ask(server, "GET", "/global/0") == (200, b"address")


def test_a_broken_world_fails_at_once(server: RendezvousServer) -> None:
    ask(server, "PUT", "/global/0", b"address")
    server.fail_formation()
    for scope in ("global", "local_a", "cross_0"):
        assert ask(server, "GET", f"/{scope}/0")[0] == 410
    assert ask(server, "GET", "/global_process_set_hash_7/0")[0] == 410
    assert ask(server, "GET", "/rank_and_size/a:0")[0] == 200


def test_who_forms_a_world_asks_once_and_hears_of_a_death_at_once(server: RendezvousServer) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as watching:
        watching.request("GET", "/global/watch", headers=OURS)
        assert ask(server, "GET", "/rank_and_size/a:0", headers=OURS)[0] == 200
        server.fail_formation()
        assert watching.getresponse().status == 410


def test_who_forms_a_world_is_asked_to_come_again(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "WATCH_SECONDS", 0.01)
    assert ask(server, "GET", "/global/watch", headers=OURS)[0] == 404


def test_a_body_without_end_is_not_taken(server: RendezvousServer) -> None:
    for length, status in ((str(1 << 40), 413), ("-1", 411), ("", 411), ("1e3", 411), ("²", 411)):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.putrequest("PUT", "/global/0")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


def test_a_head_without_end_is_not_taken(server: RendezvousServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /global/0 HTTP/1.1\r\n" + b"X: y\r\n" * 20_000)
        assert connection.recv(100).split()[1] == b"431"


def test_who_connects_and_says_nothing_is_left(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "CLIENT_SECONDS", 0.01)
    monkeypatch.setattr(rendezvous_server, "LATE_SECONDS", 0.01)
    for said in (b"", b"PUT /global/0 HTTP/1.1\r\nContent-Length: 8\r\n\r\nhalf"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(said)
            assert connection.recv(100).split()[1] == b"408"


def test_a_server_that_is_late_itself_reads_what_has_come(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timer has run out before it looks."""
    monkeypatch.setattr(rendezvous_server, "CLIENT_SECONDS", 0.0)
    monkeypatch.setattr(rendezvous_server, "LATE_SECONDS", 30.0)
    assert ask(server, "PUT", "/global/0", b"address")[0] == 200
    assert ask(server, "GET", "/global/0") == (200, b"address")


def test_a_body_that_ends_early_is_not_stored(server: RendezvousServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"PUT /global/0 HTTP/1.0\r\nContent-Length: 8\r\n\r\nhalf")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100).split()[1] == b"400"
    assert ask(server, "GET", "/global/0")[0] == 404


# --- Strangers --------------------------------------------------------------------------------------------------------


def test_other_methods_tell_nothing(server: RendezvousServer) -> None:
    """Horovod's server derives from one of files: HEAD told of those in the launcher's working directory."""
    for method in ("HEAD", "POST", "OPTIONS"):
        assert ask(server, method, "/pyproject.toml")[0] == 501


def test_a_path_of_another_form_is_refused(server: RendezvousServer) -> None:
    for path in ("/", "/pyproject.toml", "/a/b/c", "//a", f"/{'a' * 600}/b"):
        for method in ("GET", "PUT", "DELETE"):
            assert ask(server, method, path, b"value")[0] == 400


def test_a_wrong_token_is_refused(server: RendezvousServer, requests: Requests) -> None:
    for path in ("/rank_and_size/a:0", "/join/a:0", "/synced/a:0", "/writer/a:0", "/global/0", "/local_a/0", "/x/y"):
        for method in ("GET", "PUT", "DELETE"):
            assert ask(server, method, path, b"value", STRANGER)[0] == 403
    assert (requests.places_asked, requests.has_synced, requests.initialised) == ([], [], [])


def test_the_last_figures_are_a_file_when_they_are_answered(server: RendezvousServer, tmp_path: Path) -> None:
    path, kept = f"/{FIGURES_SCOPE}/{LAST_FIGURES_KEY}", tmp_path / LAST_FIGURES_FILE
    assert ask(server, "PUT", path, b"{}")[0] == 403, "a stranger"
    assert not kept.exists()
    assert ask(server, "PUT", path, b'{"step": 7}', OURS)[0] == 200
    assert ask(server, "PUT", path, bytes(FIGURES_MAX_BYTES + 1), OURS)[0] == 200
    assert ask(server, "PUT", f"/{FIGURES_SCOPE}/another", b"{}", OURS)[0] == 200
    assert kept.read_bytes() == b'{"step": 7}'
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("tells_steps", [True, False])
def test_a_registration_is_a_sign_of_a_script_that_tells_no_steps(
    server: RendezvousServer, tmp_path: Path, *, tells_steps: bool
) -> None:
    if tells_steps:
        ask(server, "PUT", f"/{FIGURES_SCOPE}/{FIGURES_EXPECTED_KEY}", b"", OURS)
    ask(server, "PUT", "/worker_addresses/uid-1:0", b"no registration", OURS)
    assert list(tmp_path.iterdir()) == []
    body = codec.dumps_base64(({"lo": [("127.0.0.1", 5)]}, b"key"), to_ascii=False)
    assert ask(server, "PUT", "/worker_addresses/uid-1:0", body, OURS)[0] == 200
    assert [path.name for path in tmp_path.iterdir()] == ([] if tells_steps else [REGISTERED_FILE])


def test_a_full_disk_is_said_and_training_hears_nothing_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reports = ScriptReports(tmp_path / "away")
    reports.take(LAST_FIGURES_KEY, b"{}")
    reports.registered()
    assert caplog.text.count("the sidecar does not hear what training tells") == 2


def test_what_only_our_workers_ask_needs_the_token(server: RendezvousServer) -> None:
    for scope in ("join", "synced", "writer"):
        assert ask(server, "GET", f"/{scope}/a:0")[0] == 403


def test_a_worker_is_told_whether_the_last_commit_is_its_to_store(server: RendezvousServer) -> None:
    assert ask(server, "GET", "/writer/a:0", headers=OURS) == (200, b"yes")
    assert ask(server, "GET", "/writer/a:1", headers=OURS) == (200, b"no")


def test_once_a_worker_shows_the_token_nobody_asks_for_a_place_without(
    server: RendezvousServer, requests: Requests
) -> None:
    """All workers run the same command. One such question made a rank ask, after which the others were killed."""
    assert ask(server, "GET", "/rank_and_size/a:0")[0] == 200, "it may be a stock worker"
    ask(server, "GET", "/synced/a:1", headers=OURS)
    assert ask(server, "GET", "/rank_and_size/a:0")[0] == 403
    assert ask(server, "PUT", "/worker_addresses/a:0", b"value")[0] == 403
    assert ask(server, "GET", "/rank_and_size/a:0", headers=OURS)[0] == 200
    assert requests.places_asked == [("a", 0)] * 2
    assert ask(server, "PUT", "/global/0", b"address")[0] == 200, "their Horovod may be a stock one"


def come(server: RendezvousServer, requests: Requests, *headers: dict[str, str]) -> None:
    """The members a:0, a:1 ... come to the barrier together."""
    requests.meet = len(headers)
    threads = [
        threading.Thread(target=ask, args=(server, "GET", f"/join/a:{n}", None, shown))
        for n, shown in enumerate(headers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_gloos_store_is_closed_to_strangers_once_every_horovod_shows_the_token(
    server: RendezvousServer, requests: Requests
) -> None:
    assert ask(server, "PUT", "/global/0", b"a trap")[0] == 200
    come(server, requests, PATCHED, PATCHED)
    assert ask(server, "GET", "/global/0", headers=OURS)[0] == 404, "what a stranger had put there is gone"
    for method in ("GET", "PUT", "DELETE"):
        assert ask(server, method, "/global/0", b"value")[0] == 403
        assert ask(server, method, "/global_process_set_hash_7/0", b"value")[0] == 403
        assert ask(server, method, "/made/up", b"value")[0] == 403
    assert ask(server, "PUT", "/global/0", b"address", OURS)[0] == 200
    assert ask(server, "GET", "/global/0", headers=OURS) == (200, b"address")


def test_a_member_with_a_stock_horovod_keeps_gloos_store_open(server: RendezvousServer, requests: Requests) -> None:
    come(server, requests, PATCHED, OURS)
    assert ask(server, "PUT", "/global/0", b"address")[0] == 200
    server.form(place([Host(alias="a", address="x", slots=1)], None))
    come(server, requests, PATCHED)
    assert ask(server, "PUT", "/global/0", b"address")[0] == 403, "it has left the world"


def test_a_registration_says_whether_it_was_proven(server: RendezvousServer, requests: Requests) -> None:
    body = base64.b64encode(pickle.dumps(({"lo": [("127.0.0.1", 5)]}, b"key")))
    for headers in (STOCK, OURS):
        ask(server, "PUT", "/worker_addresses/a:0", body, headers)
    assert requests.proven == [False, True]


# --- The store --------------------------------------------------------------------------------------------------------


def test_a_scope_is_cleared_when_all_have_found_each_other(server: RendezvousServer) -> None:
    for scope in ("global", "local_a", "global_process_set_hash_1"):
        for rank in range(2):
            ask(server, "PUT", f"/{scope}/{rank}", b"address")
        ask(server, "DELETE", f"/{scope}/0")
        ask(server, "DELETE", f"/{scope}/0")
        assert ask(server, "GET", f"/{scope}/1")[0] == 200
    ask(server, "DELETE", "/global/1")
    assert [ask(server, "GET", f"/{scope}/0")[0] for scope in ("global", "local_a")] == [404, 200]
    assert ask(server, "GET", "/global_process_set_hash_1/0")[0] == 404, "the scope of a process set has no size here"


def test_the_store_takes_what_its_world_can_need_and_no_more() -> None:
    store = GlooStore()

    def fill(value: bytes) -> None:
        store.form({"global": 2}, 2)
        for number in range(1 << 18):
            store.put("global", str(number), value, proven=False)

    for value in (b"", bytes(VALUE_LIMIT_BYTES)):
        with pytest.raises(GlooStoreFullError):
            fill(value)
    store.forget_unproven()
    store.put("global", "0", bytes(VALUE_LIMIT_BYTES), proven=True)
    store.put("global", "0", b"again", proven=True)
    store.forget_unproven()
    assert store.get("global", "0") == b"again"


def test_what_comes_after_its_end_is_left() -> None:
    """Horovod's driver still tells of workers that end then, and what it does next depends on being heard out."""
    requests = Requests()
    server = RendezvousServer("127.0.0.1", requests, token="the job's word")
    server.start()
    server.stop()
    server.form(())
    server.fail_formation()


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> int:
    """As if this process might open so many: no more than half of them are strangers'."""
    monkeypatch.setattr(descriptors, "limit", lambda: 64)
    return 64


@pytest.mark.usefixtures("few_descriptors")
def test_strangers_that_only_begin_leave_room_for_the_job(requests: Requests, tmp_path: Path) -> None:
    server = RendezvousServer("127.0.0.1", requests, token=WORD, reports=ScriptReports(tmp_path))
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        strangers = []
        for _ in range(200):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            stranger.sendall(b"GET /x")
            strangers.append(stranger)
        for stranger in strangers[:-32]:  # the oldest give way
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        assert ask(server, "GET", "/rank_and_size/uid-1:0", headers=OURS)[0] == 200
        newest = strangers[-1]  # the last ones are still heard, but for those that gave way to what came since
        newest.sendall(b"yz/0 HTTP/1.0\r\n\r\n")
        assert newest.recv(100).split()[1] in {b"404", b"403"}


@pytest.mark.usefixtures("few_descriptors")
def test_who_shows_the_token_never_gives_way(requests: Requests, tmp_path: Path) -> None:
    """Nor do those of a stock world, as long as it has no more of them than it has processes."""
    requests.held = queue.Queue()
    server = RendezvousServer("127.0.0.1", requests, token=WORD, reports=ScriptReports(tmp_path))
    server.start()
    answers: queue.SimpleQueue[int] = queue.SimpleQueue()

    def wait_at_init() -> None:
        answers.put(ask(server, "PUT", "/global/0", b"value", headers=OURS)[0])

    own = threading.Thread(target=wait_at_init)
    own.start()
    reply = requests.held.get(timeout=30)
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        stack.callback(own.join)
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30)).sendall(b"GET /x")
        reply("")
        assert answers.get(timeout=30) == 200
