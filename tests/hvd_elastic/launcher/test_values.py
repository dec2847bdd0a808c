"""Small decisions: exit codes, hosts, ranks, blacklist, settings, report."""

import errno
import json
import math
from pathlib import Path

import pytest
from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher import launch_settings
from hvd_elastic.launcher.core.actions import WorldResized
from hvd_elastic.launcher.core.hosts.blacklist import Blacklist
from hvd_elastic.launcher.core.hosts.host_lists import HostsError, parse_hosts_flag, parse_script_output
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST, ExitVerdict, explain, judge
from hvd_elastic.launcher.core.resize_causes import CauseKind, ResizeCause, world_differences
from hvd_elastic.launcher.core.slot_placement import Slot, place
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.launch_job import _machine_problems
from hvd_elastic.launcher.launch_settings import LaunchSettings
from hvd_elastic.launcher.launcher_metrics import status_registry
from hvd_elastic.launcher.status_report import StatusReport, resize_sentence
from hvd_elastic.mpijob.problems import InvalidInputError


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (0, ExitVerdict.SUCCESS),
        (1, ExitVerdict.SCRIPT_ERROR),
        (125, ExitVerdict.SCRIPT_ERROR),
        (77, ExitVerdict.REMOVED),
        (78, ExitVerdict.HOST_CHANGE),
        (79, ExitVerdict.MISTAKE),
        (75, ExitVerdict.FAULT),
        (-9, ExitVerdict.DEATH),
        (126, ExitVerdict.SCRIPT_ERROR),
        (127, ExitVerdict.SCRIPT_ERROR),
        (128, ExitVerdict.SCRIPT_ERROR),
        (129, ExitVerdict.DEATH),
        (134, ExitVerdict.DEATH),
        (192, ExitVerdict.DEATH),
        (254, ExitVerdict.SCRIPT_ERROR),
        (255, ExitVerdict.SCRIPT_ERROR),
        (CONNECTION_LOST, ExitVerdict.DEATH),
    ],
)
def test_what_an_exit_code_says(code: int, verdict: ExitVerdict) -> None:
    assert judge(code) is verdict


def test_errors_may_be_deaths() -> None:
    assert judge(1, restart_errors=True) is ExitVerdict.DEATH
    assert judge(77, restart_errors=True) is ExitVerdict.REMOVED


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "signal 9 (SIGKILL)"),
        (137, "signal 9 (SIGKILL)"),
        (3, "exit code 3"),
        (127, "exit code 127 (the command was not found)"),
        (255, "exit code 255"),
        (CONNECTION_LOST, "connection lost"),
    ],
)
def test_an_exit_code_in_words(code: int, text: str) -> None:
    assert explain(code) == text


def test_a_scripts_lines_keep_their_order_and_count_once() -> None:
    hosts = parse_script_output("b:2\n\na\n b:3 \n", 1)
    assert [(host.alias, host.slots) for host in hosts] == [("b", 3), ("a", 1)]


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a:",
        "a:0",
        "a:x",
        "fe80::1:2",
        "a b:1",
        ":1",
        "a:1:2",
        "-oProxyCommand=x:1",
        "a/b:1",
        "@a:1",
        "u@:1",
        "u@v@a:1",
        "é:1",
        "[a]:1",
        "[::1:1",
        "[::1]1",
        "[::1]",
        "[fe80::1%eth0]:1",
        "[1.2.3.4]:1",
        "a@[::1]x:1",
    ],
)
def test_a_line_that_is_not_a_host(line: str) -> None:
    with pytest.raises(HostsError):
        parse_script_output(line, None)


def test_a_user_is_how_a_host_is_reached_and_not_another_host() -> None:
    hosts = parse_script_output("root@a:2\nu_1@b.c:1\na:3\n", None)
    assert [(host.alias, host.address, host.slots) for host in hosts] == [("a", "a", 3), ("b.c", "u_1@b.c", 1)]


def test_an_ipv6_address_stands_in_brackets_and_the_host_is_called_without_colons() -> None:
    hosts = parse_script_output("[fd00::1]:2\nroot@[FD00:0::2]\n", 1)
    found = [(host.alias, host.address, host.slots) for host in hosts]
    assert found == [("fd00--1", "fd00::1", 2), ("fd00--2", "root@fd00::2", 1)]


def test_the_hosts_flag() -> None:
    assert [host.slots for host in parse_hosts_flag("a:2,b:1")] == [2, 1]


hosts_lists = st.lists(st.integers(1, 4), max_size=6).map(
    lambda slots: [Host(alias=f"h{n}", address="x", slots=count) for n, count in enumerate(slots)]
)


@given(hosts_lists, st.one_of(st.none(), st.integers(1, 10)))
def test_ranks_are_horovods(hosts: list[Host], maximum: int | None) -> None:
    expected = get_host_assignments([HostInfo(h.alias, h.slots) for h in hosts], 0, maximum)
    slots = place(hosts, maximum)
    assert [slot.response() for slot in slots] == [slot.to_response_string() for slot in expected]
    assert [slot.rank for slot in slots] == list(range(len(slots)))


def test_without_a_range_a_host_never_returns() -> None:
    blacklist = Blacklist(cooldown=None, random=lambda: 0.0)
    assert blacklist.add("a", 0.0) == math.inf
    assert blacklist.blocks("a", 1e12)
    assert not blacklist.blocks("b", 0.0)
    assert blacklist.next_return(0.0) == math.inf


@given(st.integers(1, 20), st.floats(0, 0.999))
def test_the_cooldown_doubles_within_its_range(times: int, random: float) -> None:
    blacklist = Blacklist(cooldown=(2.0, 60.0), random=lambda: random)
    delays = [blacklist.add("a", 0.0) for _ in range(times)]
    assert all(2.0 <= delay <= 60.0 for delay in delays)
    assert delays == sorted(delays)
    assert 4.0 <= delays[0] < 6.0, "Horovod's first delay is twice the lower bound, and jitter"
    assert blacklist.next_return(0.0) == delays[-1]


def world_limits(**fields: object) -> WorldLimits:
    values = {"start": 1, "minimum": 1, "maximum": None, "elastic_timeout": math.inf, "reset_limit": None}
    times = dict.fromkeys(("settle", "hang_timeout", "removed_patience", "start_timeout", "first_start_timeout"), 60.0)
    return WorldLimits(**values | times | {"restart_errors": False} | fields)  # type: ignore[arg-type]


def settings(**fields: object) -> LaunchSettings:
    return LaunchSettings(**{"command": ("true",), "num_proc": 2, "hosts": "a:2", **fields})  # type: ignore[arg-type]


def test_all_problems_are_reported_at_once() -> None:
    wrong = settings(command=(), min_num_proc=5, max_num_proc=1, reset_limit=-1, hosts=None)
    with pytest.raises(InvalidInputError) as error:
        wrong.check()
    paths = {problem.path for problem in error.value.problems}
    assert paths == {"COMMAND", "--min-np", "--max-np", "--reset-limit", "--host-discovery-script"}


def test_every_limit_is_an_allowed_size() -> None:
    settings(sizes=(1, 2, 4), min_num_proc=1, max_num_proc=4).check()
    with pytest.raises(InvalidInputError) as error:
        settings(sizes=(2, 4), min_num_proc=1, max_num_proc=3).check()
    assert {problem.path for problem in error.value.problems} == {"--min-np", "--max-np"}


@given(st.sets(st.integers(1, 12), max_size=4), st.integers(1, 20), st.integers(0, 4))
def test_who_hands_over_is_part_of_an_allowed_size_where_a_newcomer_has_room(
    sizes: set[int], newcomers: int, handover: int
) -> None:
    limits = world_limits(sizes=tuple(sizes), maximum=max(sizes, default=None))
    size = limits.handover_size(newcomers + handover, handover)
    assert handover < size <= newcomers + handover
    fits = any(handover < one <= newcomers + handover for one in sizes)
    assert not fits or size in sizes


@pytest.mark.parametrize(("number", "refused"), [(errno.ENOSPC, 0), (errno.EDQUOT, 0), (errno.EROFS, 2)])
def test_a_full_disk_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, refused: int
) -> None:
    def fail(**_: object) -> None:
        raise OSError(number, "not now")

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    asked = settings(run_dir=tmp_path, output_filename=str(tmp_path), network_interfaces=("lo",))
    assert len(tuple(_machine_problems(asked))) == refused


@pytest.mark.parametrize("cooldown", [(0, 5), (5, 4), (1, 3601)])
def test_a_cooldown_range_has_horovods_bounds(cooldown: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        settings(blacklist_cooldown_range=cooldown).check()


def resized(pause: float | None, *causes: ResizeCause) -> WorldResized:
    return WorldResized(generation=2, before=2, after=3, causes=causes, pause_seconds=pause)


def joined(host: str, detail: str = "") -> ResizeCause:
    return ResizeCause(kind=CauseKind.JOINED, host=host, detail=detail)


def removed(host: str, detail: str = "") -> ResizeCause:
    return ResizeCause(kind=CauseKind.REMOVED, host=host, detail=detail)


KILLED = ResizeCause(kind=CauseKind.LOST, host="b", local_rank=0, detail="signal 9 (SIGKILL)")


def test_one_line_a_change() -> None:
    line = resize_sentence(resized(0.213, joined("c"), KILLED))
    assert line == "world 2 -> 3: c joined; b[0] lost: signal 9 (SIGKILL) (formed in 0.21 s)"
    assert resize_sentence(resized(None, joined("c"))) == "world of 3: c joined"


def test_the_status_file_and_the_metrics_say_the_same(tmp_path: Path) -> None:
    report = StatusReport(tmp_path)
    report.status.world_size = 3
    report.resized(resized(None, joined("a")), 1.0)
    report.resized(resized(0.2, joined("c"), KILLED), 2.0)
    report.write()
    document = json.loads((tmp_path / "status.json").read_text())
    assert document["resizes"][-1] == {
        "unix": 2.0,
        "generation": 2,
        "before": 2,
        "after": 3,
        "causes": ["c joined", "b[0] lost: signal 9 (SIGKILL)"],
        "pause_seconds": 0.2,
    }
    lines = generate_latest(status_registry(report)).decode().splitlines()
    assert f"hvd_elastic_launcher_world_size {document['world_size']}.0" in lines
    assert 'hvd_elastic_launcher_resizes_total{cause="joined"} 1.0' in lines
    assert 'hvd_elastic_launcher_resizes_total{cause="lost"} 1.0' in lines
    assert 'hvd_elastic_launcher_resizes_total{cause="hung"} 0.0' in lines, "increase() needs a value before the first"
    assert 'hvd_elastic_launcher_pause_seconds_bucket{le="0.1"} 0.0' in lines
    assert 'hvd_elastic_launcher_pause_seconds_bucket{le="0.2"} 1.0' in lines
    assert 'hvd_elastic_launcher_pause_seconds_bucket{le="1"} 1.0' in lines
    assert "hvd_elastic_launcher_pause_seconds_count 1.0" in lines


def test_the_names_and_types_of_the_metrics(tmp_path: Path) -> None:
    text = generate_latest(status_registry(StatusReport(tmp_path))).decode()
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert {name.removeprefix("hvd_elastic_launcher_"): kind for name, kind in types.items()} == {
        "world_size": "gauge",
        "wanted_size": "gauge",
        "generation": "gauge",
        "blacklisted_hosts": "gauge",
        "resets_total": "counter",
        "restarts_total": "counter",
        "resizes_total": "counter",
        "pause_seconds": "histogram",
    }


def test_metrics_without_their_library_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    settings(metrics_port=0).check()
    monkeypatch.setattr(launch_settings, "find_spec", lambda name: None)
    settings().check()
    with pytest.raises(InvalidInputError, match=r"--metrics-port.*hvd-elastic\[train\]"):
        settings(metrics_port=0).check()


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (joined("a"), "a joined"),
        (joined("a", "with 1 more"), "a joined with 1 more"),
        (removed("a", "but for 1 of 2"), "a removed but for 1 of 2"),
        (KILLED, "b[0] lost: signal 9 (SIGKILL)"),
        (ResizeCause(kind=CauseKind.LEFT, host="a", local_rank=1, detail="exit code 78"), "a[1] left: exit code 78"),
        (
            ResizeCause(kind=CauseKind.HUNG, host="a", detail="does not answer (2 s)"),
            "a written off: does not answer (2 s)",
        ),
        (ResizeCause(kind=CauseKind.OTHER, detail="asked for by rank 1"), "asked for by rank 1"),
    ],
)
def test_a_cause_in_words(cause: ResizeCause, sentence: str) -> None:
    assert str(cause) == sentence


def test_the_differences_of_two_worlds_host_by_host() -> None:
    def world(**slots: int) -> tuple[Slot, ...]:
        return place([Host(alias=f"{pod}-1", address="x", slots=n, pod=pod) for pod, n in slots.items()], None)

    assert world_differences((), world(a=2), []) == [joined("a")]
    differences = world_differences(world(a=1, b=1), world(a=2, c=1), [])
    assert differences == [joined("c"), joined("a", "with 1 more"), removed("b")]
    assert world_differences(world(a=2, b=2), world(a=1), [KILLED]) == [removed("a", "but for 1 of 2")]
    assert world_differences(world(a=1), world(a=1), []) == []
    (surplus, gone) = world_differences(world(a=1, b=1, c=1), world(a=1), [], {"a-1", "b-1"})
    assert (str(surplus), str(gone)) == ("b is surplus", "c removed")
