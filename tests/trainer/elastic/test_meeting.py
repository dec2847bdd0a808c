"""How a world's processes find each other: in one request each, if all know how. And what a death costs then."""

import json
import signal
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import place
from hvd_elastic.launcher.protocol.meeting import Meeting, MeetingError
from hvd_elastic.mpijob.contract import Exit
from tests.failing_threads import wait_for
from tests.ipv6 import needs_ipv6
from tests.trainer.elastic.bare_world import ends
from tests.trainer.elastic.met_world import MetWorld, met_world

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def said(world: MetWorld) -> list[object]:
    """What each process has said last."""
    done = [ends(process) for process in world.processes]
    assert [code for code, _ in done] == [0] * len(done), done
    return [json.loads(output.splitlines()[-1]) for _, output in done]


def expected(hosts: Sequence[int], *, all_but_0: bool = False, mixed: bool = False) -> list[dict[str, object]]:
    """What each says. In a mixed world process set 0 has connections of its own, so there are twice as many."""
    slots = place([Host(alias=f"h{n}", address="", slots=each) for n, each in enumerate(hosts)], None)
    size = len(slots)
    members = range(1, size) if all_but_0 else [0, size - 1] if size > 2 else [1]
    return [
        {
            "connections": (1 + mixed) * (slot.size + slot.local_size + slot.cross_size - 3),
            "place": [int(value) for value in slot.response().split(",")],
            "homogeneous": len(set(hosts)) == 1,
            "all": [float(rank) for rank in range(size)],
            "sum": float(sum(range(size))),
            "some": float(sum(members)) if slot.rank in members else None,
            "objects": list(range(size)),
        }
        for slot in slots
    ]


@pytest.mark.needs_patch("gloo-meeting")
@pytest.mark.parametrize("hosts", [[2], [1, 1], [1, 1, 1], [3, 1], [2, 1, 2], [4, 4]])
def test_a_process_asks_once(hosts: list[int]) -> None:
    with met_world("form", hosts) as world:
        assert said(world) == expected(hosts)
    counts = Counter(world.asked)
    assert counts["PUT meet"] == sum(hosts)
    assert counts["GET join"] == sum(hosts)
    store = {"PUT global", *(f"{method} {scope}" for method in ("PUT", "GET") for scope in ("local_h0", "cross_0"))}
    assert not store & counts.keys()  # GET global is also the question of who waits long for its world


@needs_ipv6
@pytest.mark.needs_patch("ipv6")
def test_processes_reach_a_launcher_that_has_an_ipv6_address() -> None:
    with met_world("form", [1, 1], server_at="::1") as world:
        assert said(world) == expected([1, 1])


@pytest.mark.needs_patch("process-set-hosts")
@pytest.mark.parametrize("hosts", [[2, 1, 2], [4, 4]])
def test_a_process_set_may_leave_out_more_of_one_host(hosts: list[int]) -> None:
    with met_world("all-but-0", hosts, gloo_timeout_seconds=30) as world:  # without the patch it is waited for
        assert said(world) == expected(hosts, all_but_0=True)


def test_a_world_of_old_and_new_builds_finds_itself_in_the_store() -> None:
    with met_world("mixed", [2, 1]) as world:
        assert said(world) == expected([2, 1], mixed=True)
    assert "PUT meet" not in world.asked


@pytest.mark.needs_patch("small-allreduce")
@pytest.mark.parametrize("hosts", [[2, 2, 1], [3, 3], [7], [8]])
def test_small_sums_go_over_a_tree(hosts: list[int]) -> None:
    """Each process hears of its parent and its children there, and in a ring of one neighbour."""
    size = sum(hosts)
    with met_world("sums", hosts) as world:
        found = said(world)
    total = sum(range(size))
    sums = {"small": [total, total + size, total + 2 * size], "large": [total], "most": [size - 1, size, size + 1]}
    assert found == [{"peers": tree_peers(rank, size), **sums} for rank in range(size)]


def tree_peers(rank: int, size: int) -> int:
    """Of a binomial tree: the children are at the bits below the lowest one of the rank, the parent at that one."""
    lowest = rank & -rank or size
    return sum(bit < lowest and rank + bit < size for bit in (1, 2, 4)) + (rank > 0)


@pytest.mark.needs_patch("process-set-connections")
def test_shutdown_closes_all_connections() -> None:
    with met_world("leave", [2, 1]) as world:
        assert said(world) == [0, 0, 0]


def test_a_world_of_one_asks_nobody() -> None:
    with met_world("form", [1]) as world:
        assert ends(world.processes[0])[0] == 0
    assert "PUT meet" not in world.asked


@pytest.mark.needs_patch("gloo-meeting")
@pytest.mark.parametrize("when", ["before it tells", "before the others tell", "before it connects"])
def test_a_member_that_dies_while_its_world_forms_costs_the_others_no_time_out(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Meeting.take
    dies = 2  # of two processes that of the higher rank connects

    def noted(meeting: Meeting, request: bytes) -> None:
        is_its = rank_of(request) == dies
        if when == "before it tells" and is_its:
            kill()
            world.server.fail_formation()
            raise MeetingError("died before that")
        take(meeting, request)
        if when == "before the others tell" and is_its:
            kill()
            world.server.fail_formation()
        elif when == "before it connects" and meeting.is_complete:
            kill()

    def kill() -> None:
        world.processes[dies].kill()
        world.processes[dies].wait()

    monkeypatch.setattr(Meeting, "take", noted)
    with met_world("form", [2, 1], forked=False) as world:
        if when == "before it connects":
            wait_for(lambda: "GET global" in world.asked, seconds=120)  # the others ask what keeps it
            world.server.fail_formation()
        assert [ends(process)[0] for process in world.processes] == [Exit.REMOVED, Exit.REMOVED, -signal.SIGKILL]


@pytest.mark.needs_patch("gloo-meeting")
def test_a_process_that_is_held_notices_a_lost_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel probes its connection. Without that it would wait for a lost host without an end."""
    take = Meeting.take
    probed: list[str] = []

    def noted(meeting: Meeting, request: bytes) -> None:
        take(meeting, request)
        if meeting.is_complete:
            probed.extend(probed_connections(world.server.port))

    monkeypatch.setattr(Meeting, "take", noted)
    with met_world("form", [2, 1]) as world:
        assert said(world) == expected([2, 1])
    assert len(probed) == 3


def probed_connections(port: int) -> list[str]:
    """The established connections of this machine to a port for which the timer of keep-alive probes runs.

    The columns: Documentation/networking/proc_net_tcp.rst of Linux.
    """
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[2].endswith(f":{port:04X}") and (row[3], row[5][:2]) == ("01", "02")]


@pytest.mark.needs_patch("gloo-meeting")
def test_a_stranger_that_connects_is_taken_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reaches a pod's ports may connect. It does not know the word that each process tells the others."""
    take = Meeting.take
    strangers: list[socket.socket] = []

    def with_strangers(meeting: Meeting, request: bytes) -> None:
        told = request[-14:]
        listens_at = socket.inet_ntoa(told[:4]), int.from_bytes(told[4:6])
        a_member = struct.pack("!II", 0, 2)
        for greeting in (
            *[b""] * 70,  # more than are kept
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(8) + a_member,
            told[6:] + struct.pack("!II", 7, 2),
            told[6:9],
        ):
            strangers.append(socket.create_connection(listens_at))
            strangers[-1].sendall(greeting)
        socket.create_connection(listens_at).close()
        take(meeting, request)

    monkeypatch.setattr(Meeting, "take", with_strangers)
    with met_world("form", [2, 1]) as world:
        assert said(world) == expected([2, 1])
    for stranger in strangers:
        stranger.close()


def rank_of(request: bytes) -> int:
    return int.from_bytes(request[8:12])
