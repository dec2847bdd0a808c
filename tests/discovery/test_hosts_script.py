import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hvd_elastic.discovery import Host, Snapshot, uptime_seconds, write_script, write_snapshot
from hvd_elastic.discovery.hosts_script import FIRST_WAIT_SECONDS, HOSTS_PER_PART
from hvd_elastic.mpijob.contract import SNAPSHOT_FILE, SNAPSHOT_MAX_AGE_SECONDS

HOROVOD_WAIT_SECONDS = 5
"""Horovod's driver blocks at most this long."""
SHELLS = [shell for shell in (["dash"], ["bash", "--posix"], ["busybox", "sh"], ["sh"]) if shutil.which(shell[0])]


def hosts(count: int) -> tuple[Host, ...]:
    return tuple(
        Host(address=f"10.0.0.{i}", slots=i, alias=f"uid-{i}", pod=f"job-worker-{i}") for i in range(1, count + 1)
    )


def snapshot(count: int, age_seconds: int = 0) -> Snapshot:
    return Snapshot(
        hosts=hosts(count), generation=3, uptime_seconds=uptime_seconds() - age_seconds, unix_seconds=int(time.time())
    )


def run(script: Path, shell: list[str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*(shell or []), str(script)], capture_output=True, text=True, timeout=10, check=False)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return write_script(tmp_path)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_prints_address_and_slots_in_the_order_of_ranks(script: Path, shell: list[str]) -> None:
    write_snapshot(script.parent, snapshot(3))
    done = run(script, shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10.0.0.1:1\n10.0.0.2:2\n10.0.0.3:3\n", "")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_prints_a_name_in_place_of_an_ipv6_address(script: Path, shell: list[str]) -> None:
    """Horovod takes what follows the first colon for the slots."""
    worker = Host(address="fd00::1", slots=2, alias="uid-of-pod-7", pod="job-worker-0")
    write_snapshot(script.parent, replace(snapshot(0), hosts=(worker, *hosts(1))))
    done = run(script, shell)
    assert (done.returncode, done.stdout) == (0, "job-worker-0.uid-of-pod:2\n10.0.0.1:1\n")
    assert done.stdout.splitlines() == [f"{host.name}:{host.slots}" for host in (worker, *hosts(1))]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_truly_no_hosts_is_an_empty_list(script: Path, shell: list[str]) -> None:
    write_snapshot(script.parent, snapshot(0))
    done = run(script, shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("age", [SNAPSHOT_MAX_AGE_SECONDS + 2, -100])
def test_a_stale_list_or_one_of_an_earlier_boot_is_refused_at_once(script: Path, shell: list[str], age: int) -> None:
    write_snapshot(script.parent, snapshot(3, age))
    done = run(script, shell)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "s old" in done.stderr


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_cut_snapshot_is_refused_wherever_it_is_cut(script: Path, shell: list[str]) -> None:
    write_snapshot(script.parent, snapshot(2))
    path = script.parent / SNAPSHOT_FILE
    whole = path.read_text()
    state = whole.rindex(" ") + 1
    for cut in range(0, state, 5):
        path.write_text(whole[:cut])
        done = run(script, shell)
        assert (done.returncode != 0, done.stdout) == (True, ""), whole[:cut]


@pytest.mark.parametrize("line", ["touch made", "host 10.0.0.9"])
def test_a_foreign_line_is_no_command_and_no_host(script: Path, line: str) -> None:
    write_snapshot(script.parent, snapshot(1))
    path = script.parent / SNAPSHOT_FILE
    path.write_text(line.replace("made", str(script.parent / "made")) + "\n" + path.read_text())
    done = run(script)
    assert not (script.parent / "made").exists()
    assert "10.0.0.9" not in done.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("line", ["exit 0", "exec true", "return 0", "ended=yes; exit", "if", "'"])
def test_a_line_that_ends_the_shell_is_no_empty_list(script: Path, shell: list[str], line: str) -> None:
    write_snapshot(script.parent, snapshot(2))
    path = script.parent / SNAPSHOT_FILE
    first, rest = path.read_text().split("\n", 1)
    path.write_text(f"{first}\n{line}\n{rest}")
    done = run(script, shell)
    assert (done.returncode != 0, done.stdout) == (True, "")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("count", [1, HOSTS_PER_PART - 1, HOSTS_PER_PART, HOSTS_PER_PART + 1, 3 * HOSTS_PER_PART + 2])
def test_hosts_gathered_in_parts_are_all_there(script: Path, shell: list[str], count: int) -> None:
    write_snapshot(script.parent, snapshot(count))
    expected = "".join(f"{host.address}:{host.slots}\n" for host in hosts(count))
    assert run(script, shell).stdout == expected


def test_waits_for_the_first_snapshot(script: Path) -> None:
    process = subprocess.Popen([str(script)], stdout=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    write_snapshot(script.parent, snapshot(1))
    assert process.communicate(timeout=10)[0] == "10.0.0.1:1\n"
    assert process.returncode == 0


def test_gives_up_before_horovod_does(script: Path) -> None:
    assert FIRST_WAIT_SECONDS < HOROVOD_WAIT_SECONDS
    done = run(script)
    assert done.returncode != 0
    assert "no snapshot" in done.stderr


def test_needs_nothing_but_the_shell(script: Path) -> None:
    write_snapshot(script.parent, snapshot(1))
    done = subprocess.run([str(script)], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.stdout == "10.0.0.1:1\n"


def test_is_replaced_whole_and_executable(script: Path) -> None:
    assert os.access(write_script(script.parent), os.X_OK)
    assert [path.name for path in script.parent.iterdir()] == [script.name]
