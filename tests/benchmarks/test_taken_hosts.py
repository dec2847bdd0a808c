"""Hosts of a replay on this machine: what a platform that takes one does to its processes. Real processes."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from benchmarks.peers import hosts as taken_hosts
from benchmarks.peers.hosts import Host, Hosts, hosts

pytestmark = pytest.mark.process

LEAVES_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
IGNORES_TERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "host-0.log"


@pytest.fixture
def start(log: Path) -> Iterator[Callable[[str], Host]]:
    started: list[Host] = []

    def begin(code: str) -> Host:
        started.append(Host.start([sys.executable, "-c", code], os.environ, log))
        until(lambda: log.read_text().endswith("\n"))
        return started[-1]

    yield begin
    for host in started:
        host.end()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_the_first_process_leaves_behind_is_killed_with_it(start: Callable[[str], Host], log: Path) -> None:
    host = start(LEAVES_A_CHILD)
    child = psutil.Process(int(log.read_text()))
    assert not host.gone(0.0)
    host.take(0.0)
    until(lambda: host.gone(0.0))
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_who_ignores_sigterm_has_the_grace(start: Callable[[str], Host]) -> None:
    host = start(IGNORES_TERM)
    host.take(100.0)
    assert not host.gone(100.0 + taken_hosts.GRACE_SECONDS)
    assert host.process.poll() is None
    until(lambda: host.gone(100.1 + taken_hosts.GRACE_SECONDS))


@pytest.mark.core
@pytest.mark.process
def test_the_last_hosts_are_taken_and_started_again(tmp_path: Path) -> None:
    def command(place: int) -> tuple[Sequence[str], dict[str, str]]:
        return [sys.executable, "-c", f"import time; print({place}, flush=True); time.sleep(600)"], dict(os.environ)

    def tended(found: Hosts, held: int) -> bool:
        found.tend(time.monotonic())
        return found.held == held

    with hosts(command, 3, tmp_path) as found:
        first = dict(found.hosts)
        assert sorted(first) == [0, 1, 2]
        found.want(1)
        until(lambda: tended(found, 1))
        assert found.hosts == {0: first[0]}
        found.want(3)
        until(lambda: tended(found, 3))
        assert found.hosts[0] is first[0]
        assert found.hosts[1] is not first[1]
        first[0].process.kill()
        until(lambda: tended(found, 3) and found.hosts[0] is not first[0])
    assert all(host.process.poll() is not None for host in found.hosts.values())
