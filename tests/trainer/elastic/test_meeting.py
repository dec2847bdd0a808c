"""How a world's processes find each other: in one request each, if all know how. And what a death costs then."""

import json
import signal
from collections import Counter
from collections.abc import Sequence

import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import place
from hvd_elastic.launcher.protocol.meeting import Meeting, MeetingError
from hvd_elastic.mpijob.contract import Exit
from tests.trainer.elastic.bare_world import ends
from tests.trainer.elastic.met_world import MetWorld, met_world

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def said(world: MetWorld) -> list[dict[str, object]]:
    """What each process has found."""
    done = [ends(process) for process in world.processes]
    assert [code for code, _ in done] == [0] * len(done), done
    return [json.loads(output.splitlines()[-1]) for _, output in done]


def expected(hosts: Sequence[int], *, all_but_0: bool = False) -> list[dict[str, object]]:
    slots = place([Host(alias=f"h{n}", address="", slots=each) for n, each in enumerate(hosts)], None)
    size = len(slots)
    members = range(1, size) if all_but_0 else [0, size - 1] if size > 2 else [1]
    return [
        {
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
    local, cross, whole = "local_h0", "cross_0", "global"
    assert not {f"{method} {scope}" for method in ("PUT", "GET") for scope in (local, cross, whole)} & counts.keys()


@pytest.mark.needs_patch("process-set-hosts")
@pytest.mark.parametrize("hosts", [[2, 1, 2], [4, 4]])
def test_a_process_set_may_leave_out_more_of_one_host(hosts: list[int]) -> None:
    with met_world("all-but-0", hosts, gloo_timeout_seconds=30) as world:  # without the patch it is waited for
        assert said(world) == expected(hosts, all_but_0=True)


def test_a_world_of_old_and_new_builds_finds_itself_in_the_store() -> None:
    with met_world("mixed", [2, 1]) as world:
        assert said(world) == expected([2, 1])
    assert "PUT meet" not in world.asked


def test_a_world_of_one_asks_nobody() -> None:
    with met_world("form", [1]) as world:
        assert ends(world.processes[0])[0] == 0
    assert "PUT meet" not in world.asked


@pytest.mark.needs_patch("gloo-meeting")
@pytest.mark.parametrize("told", [True, False])
def test_a_member_that_dies_while_its_world_forms_costs_the_others_no_time_out(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at the barrier's end or, `told`, after it has told where it listens; the launcher knows at once."""
    take = Meeting.take

    def dies(meeting: Meeting, request: bytes) -> int:
        if int.from_bytes(request[12:16]) == 1:  # the rank
            world.processes[1].kill()
            world.processes[1].wait()
            world.server.fail_formation()
            if not told:
                raise MeetingError("died before that")
        return take(meeting, request)

    monkeypatch.setattr(Meeting, "take", dies)
    with met_world("form", [2, 1]) as world:
        assert [ends(process)[0] for process in world.processes] == [Exit.REMOVED, -signal.SIGKILL, Exit.REMOVED]
