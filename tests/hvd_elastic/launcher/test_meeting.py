"""How processes tell each other where they listen: the messages, and the server in whatever order they come."""

import http.client
import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import Slot, place
from hvd_elastic.launcher.protocol import rendezvous_server
from hvd_elastic.launcher.protocol.meeting import Meeting, MeetingError
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer
from tests.hvd_elastic.launcher.test_rendezvous_server import OURS, STOCK, STRANGER, Requests

HOSTS = st.lists(st.integers(1, 4), min_size=1, max_size=5)
V4, V6 = 14, 30
"""Bytes that a process tells: its address, a port and a word."""

FEW = st.lists(st.integers(1, 2), min_size=1, max_size=2)
"""So few that often all of them come."""


def world(slots_of_hosts: Sequence[int]) -> tuple[Slot, ...]:
    return place([Host(alias=f"h{n}", address="", slots=slots) for n, slots in enumerate(slots_of_hosts)], None)


def says(rank: int, length: int = V4) -> bytes:
    """What a process tells the others: opaque to the server."""
    return rank.to_bytes(length)


def told(slots: Sequence[Slot], slot: Slot, length: int = V4) -> bytes:
    """What a process sends, as `gloo_meeting.cc` writes it."""
    places = slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size
    return b"HVDM" + bytes([2, length, 0, 0]) + struct.pack("!6I", *places) + says(slot.rank, length)


def heard(slots: Sequence[Slot], length: int = V4) -> bytes:
    """What all must get, once all have told."""
    message = b"HVDM" + bytes([2, length, 0, 1])
    for slot in sorted(slots, key=lambda each: each.rank):
        host = int(slot.host.alias.removeprefix("h"))
        message += struct.pack("!II", host, slot.local_rank) + says(slot.rank, length)
    return message


@given(HOSTS, st.sampled_from([V4, V6]), st.randoms(use_true_random=False))
def test_each_gets_where_the_others_listen_for_it(hosts: list[int], length: int, random: object) -> None:
    slots = world(hosts)
    meeting = Meeting(1, slots)
    order = list(slots)
    random.shuffle(order)  # type: ignore[attr-defined]
    for slot in order:
        assert not meeting.is_complete
        meeting.take(told(slots, slot, length))
        meeting.take(told(slots, slot, length))  # once more, as one whose answer was lost
    assert meeting.is_complete
    assert meeting.answer() == heard(slots, length)


SLOTS = world([2, 1])
RIGHT = told(SLOTS, SLOTS[1])


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (b"", "too short"),
        (b"GET / HTTP/1.1\r\n\r\n" * 4, "no message"),
        (b"HVDM\x01" + RIGHT[5:], "no message"),
        (RIGHT[:5] + b"\x05" + RIGHT[6:], "no message"),
        (RIGHT[:8] + b"\xff\xff\xff\xff" + RIGHT[12:], "rank 4294967295 of a world of 3"),
        (RIGHT[:12] + b"\x7f\xff\xff\xff" + RIGHT[16:], "another place"),
        (told(world([1, 2]), world([1, 2])[1]), "another place"),
        (RIGHT[:31], "too short"),
        (RIGHT[:-1], "13 bytes .* where 14"),
        (RIGHT + b"\0", "15 bytes .* where 14"),
        (told(SLOTS, SLOTS[1], V6), "another kind of address"),
    ],
)
def test_what_is_not_of_this_world_is_refused(request_: bytes, why: str) -> None:
    meeting = Meeting(1, SLOTS)
    meeting.take(told(SLOTS, SLOTS[0]))
    with pytest.raises(MeetingError, match=why):
        meeting.take(request_)
    assert meeting.answer() == b"HVDM\x02\x0e\x00\x00", "and nothing of it is kept"


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_way(request: bytes) -> None:
    with pytest.raises(MeetingError):
        Meeting(1, SLOTS).take(request)


def test_all_members_are_told_alike_whether_they_meet() -> None:
    """Who comes late may say what the others had not said."""
    meeting = Meeting(7, SLOTS)
    for slot in SLOTS[1:]:
        meeting.note_able(slot.key)
    assert meeting.go() == "go"
    meeting.note_able(SLOTS[0].key)
    assert meeting.go() == "go"
    meeting = Meeting(8, SLOTS)
    for slot in SLOTS:
        meeting.note_able(slot.key)
    assert meeting.go() == "go 8"


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    server = RendezvousServer("127.0.0.1", Requests(), token="the job's word")
    server.start()
    server.form(SLOTS)
    yield server
    server.stop()


def put(
    server: RendezvousServer, number: int, body: bytes, headers: dict[str, str] = OURS
) -> http.client.HTTPConnection:
    """Send a request, and do not wait for its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("PUT", f"/meet/{number}", body, headers)
    return connection


def answer(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    response = connection.getresponse()
    connection.close()
    return response.status, response.read()


def test_one_that_waited_long_is_told_to_ask_again(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "MEETING_SECONDS", 0.01)
    assert answer(put(server, 1, told(SLOTS, SLOTS[0]))) == (200, b"HVDM\x02\x0e\x00\x00")
    monkeypatch.setattr(rendezvous_server, "MEETING_SECONDS", 30.0)
    open_ = [put(server, 1, told(SLOTS, slot)) for slot in SLOTS]
    assert [answer(each) for each in open_] == [(200, heard(SLOTS))] * len(SLOTS)


@pytest.mark.parametrize("headers", [STOCK, STRANGER])
def test_a_stranger_is_not_taken_for_a_member(server: RendezvousServer, headers: dict[str, str]) -> None:
    assert answer(put(server, 1, told(SLOTS, SLOTS[0]), headers))[0] == 403


def test_a_message_of_another_form_is_refused_and_said(
    server: RendezvousServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert answer(put(server, 1, b"hello")) == (400, b"")
    assert "a message that is too short" in caplog.text


class Worlds(RuleBasedStateMachine):
    """Worlds that form, break and form anew, and members that tell, hang up and tell again, in any order."""

    @initialize(hosts=FEW)
    def begin(self, hosts: list[int]) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(rendezvous_server, "MEETING_SECONDS", 600.0)  # a test does not wait so long
        self.server = RendezvousServer("127.0.0.1", Requests(), token="the job's word")
        self.server.start()
        self.number, self.broken = 0, False
        self.held: dict[int, http.client.HTTPConnection] = {}
        self.form(hosts)

    @rule(hosts=FEW)
    def form(self, hosts: list[int]) -> None:
        self.server.form(world(hosts))
        self.all_end()
        self.slots, self.number, self.broken, self.told = world(hosts), self.number + 1, False, set[int]()

    @rule()
    def member_dies(self) -> None:
        self.server.fail_formation()
        self.broken = True
        self.all_end()

    @rule(data=st.data())
    def tells(self, data: st.DataObject) -> None:
        slot = self.slots[data.draw(st.integers(0, len(self.slots) - 1))]
        if (connection := self.held.pop(slot.rank, None)) is not None:
            connection.close()
        self.held[slot.rank] = put(self.server, self.number, told(self.slots, slot))
        if self.broken:
            self.all_end()
        else:
            self.told.add(slot.rank)

    @rule(back=st.integers(1, 3))
    def one_of_an_earlier_world_tells(self, back: int) -> None:
        assert answer(put(self.server, self.number - back, told(self.slots, self.slots[0]))) == (410, b"")

    @precondition(lambda self: not self.broken)
    @rule(data=st.data())
    def one_with_another_place_tells(self, data: st.DataObject) -> None:
        other = world(data.draw(FEW.filter(lambda hosts: sum(hosts) != len(self.slots))))
        assert answer(put(self.server, self.number, told(other, other[-1]))) == (400, b"")

    @invariant()
    def all_hear_once_all_have_told(self) -> None:
        if not self.broken and len(self.told) == len(self.slots):
            assert {answer(connection) for connection in self.held.values()} <= {(200, heard(self.slots))}
            self.held.clear()

    def all_end(self) -> None:
        """Whoever is held was not answered before, and is told that this world will not form."""
        assert {answer(connection) for connection in self.held.values()} <= {(410, b"")}
        self.held.clear()

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self.server.form(())
            self.all_end()
            self.server.stop()
            self.patch.undo()


TestWorlds = Worlds.TestCase
TestWorlds.settings = settings(deadline=None)
