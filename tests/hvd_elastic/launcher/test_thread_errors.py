"""An error that nobody has foreseen, in each of the launcher's threads: it is said, and the thread's work goes on."""

import functools
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.signs_of_life import PingOutcome
from hvd_elastic.launcher.file_watch import FileWatch
from hvd_elastic.launcher.host_sources import SnapshotSource
from hvd_elastic.launcher.protocol import process_pings
from hvd_elastic.launcher.protocol.notifier import Notifier
from hvd_elastic.launcher.protocol.process_pings import ProcessPings
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer
from hvd_elastic.launcher.remote import ssh, worker_output
from hvd_elastic.launcher.remote.command_runner import LocalCommandRunner, RunningCommand
from hvd_elastic.launcher.remote.host_addresses import HostAddresses
from hvd_elastic.launcher.remote.output_sinks import LossySink, StreamSink
from hvd_elastic.launcher.remote.ssh import SshCommandRunner, SshSession
from hvd_elastic.launcher.remote.worker_output import OutputReader, OutputStream
from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses
from hvd_elastic.system import background_threads
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.system.backoff import Backoff
from tests.failing_threads import FailsOnce, fails_once, goes_on, wait_for

HOST = Host(address="127.0.0.1", slots=1, alias="a")


def test_notices(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for a notice that was not sent."""
    failing = fails_once(monkeypatch, Notifier, "_send")
    delivered: list[bool] = []
    notifier = Notifier(delivered.append)
    notifier.start()
    registration: Any = _Registration()
    notifier.notify(registration)
    wait_for(lambda: delivered == [False])
    notifier.notify(registration)
    goes_on("notices", failing, caplog)
    wait_for(lambda: delivered == [False, True])
    notifier.stop()


class _Registration:
    def notify(self, _stamp: int) -> None: ...


def test_pings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the launcher's own says nothing of the process."""
    monkeypatch.setattr(process_pings, "_AT_A_TIME", 1)
    failing = fails_once(monkeypatch, process_pings, "_ping")
    monkeypatch.setattr(failing, "_work", lambda *_: PingOutcome.ANSWERED)
    outcomes: list[tuple[int, PingOutcome]] = []
    pings = ProcessPings(lambda number, outcome: outcomes.append((number, outcome)))
    registration: Any = None
    pings.ping(1, registration)
    pings.ping(2, registration)
    goes_on("ping 1", failing, caplog)
    wait_for(lambda: outcomes == [(1, PingOutcome.UNKNOWN), (2, PingOutcome.ANSWERED)])


def test_rendezvous(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = fails_once(monkeypatch, RendezvousServer, "_serve")
    requests: Any = None
    server = RendezvousServer("127.0.0.1", requests, token="t")
    server.start()
    goes_on("rendezvous", failing, caplog)
    server.stop()


def test_dns(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = FailsOnce(lambda _: "10.0.0.1")
    monkeypatch.setattr(background_threads, "RESTART", Backoff(first_seconds=0.01, most_seconds=0.1))
    changed = threading.Event()
    addresses = HostAddresses(changed.set, look_up=failing)
    addresses.expect(["node"])
    goes_on("dns node", failing, caplog)
    assert changed.wait(20)
    assert addresses.number("node") == "10.0.0.1"


def test_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = fails_once(monkeypatch, FileWatch, "wait")
    stop = threading.Event()
    watch = functools.partial(SnapshotSource(tmp_path).watch, lambda _: None, stop)
    start_thread("hosts", watch, log=ssh.logger, stopped=stop)
    goes_on("hosts", failing, caplog)
    stop.set()


def test_ssh_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """`subprocess.SubprocessError`, for example, which is no OSError."""
    failing = fails_once(monkeypatch, ssh._MasterConnection, "_hold_open")
    monkeypatch.setattr(failing, "_work", lambda _: False)
    runner = SshCommandRunner(tmp_path, port=None, identity_file=None, changed=lambda: None)
    runner.expect((), (ExpectedWorker(address="192.0.2.1", uid="one"),))
    goes_on("ssh 192.0.2.1", failing, caplog)
    runner.close()


def test_a_command_that_cannot_be_sent_its_environment_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wrong: Any = "text"
    log = os.memfd_create("log")
    SshSession(process, log).send(wrong)
    assert process.wait(20) == -15
    assert "cannot be sent: TypeError" in caplog.text
    os.close(log)


def streams() -> tuple[OutputStream, OutputStream]:
    sink = LossySink("stdout", StreamSink(sys.stdout))
    stdout, stderr = (OutputStream(name, (sink, None), lambda: "0") for name in ("stdout", "stderr"))
    return stdout, stderr


def test_outputs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failing = fails_once(monkeypatch, OutputReader, "_read")
    reader = OutputReader()
    reader.start()
    stream, _ = streams()
    reading, writing = os.pipe()
    reader.add(os.fdopen(reading, "rb"), stream)
    os.write(writing, b"line\n")
    os.close(writing)
    goes_on("outputs", failing, caplog)
    assert stream.drained.wait(20)
    assert list(stream.tail) == ["line"]
    reader.drain(20)


@pytest.mark.parametrize("method", ["feed", "show_bar", "end"])
def test_one_output_that_cannot_be_shown_stops_no_worker(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    reader = OutputReader()
    reader.start()
    (bad, good), threads = streams(), list[threading.Thread]()
    monkeypatch.setattr(bad, method, fail)
    for stream in (bad, good):
        reading, writing = os.pipe()
        reader.add(os.fdopen(reading, "rb"), stream)
        writer = functools.partial(_write_and_close, writing, b"line\n" * 100_000)
        threads.append(threading.Thread(target=writer, daemon=True))
        threads[-1].start()
    assert good.drained.wait(20)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a worker that prints is stopped"
    reader.drain(20)
    assert 0 < caplog.text.count("RuntimeError: broken") < 12
    assert worker_output.logger.name in {record.name for record in caplog.records}


def _write_and_close(descriptor: int, data: bytes) -> None:
    with io.FileIO(descriptor, "w") as file:
        for start in range(0, len(data), 4096):
            file.write(data[start : start + 4096])


@pytest.mark.parametrize("broken", ["wait", "last_words"])
def test_the_launcher_learns_of_an_end_that_cannot_be_read(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(RunningCommand, broken, fail if broken == "wait" else property(fail))
    outputs, ended = OutputReader(), list[tuple[int, int, str]]()
    outputs.start()
    workers = WorkerProcesses(LocalCommandRunner(), outputs, tmp_path)

    def note(number: int, code: int, message: str) -> None:
        ended.append((number, code, message))

    workers.start(7, HOST, command=["sh", "-c", "exit 3"], environment={}, streams=streams(), ended=note)
    wait_for(lambda: bool(ended))
    assert ended[0][:2] == (7, 3)
    assert "its last words are not known: RuntimeError: broken" in ended[0][2]
    assert "RuntimeError: broken" in caplog.text
    workers.end_all()
    outputs.drain(20)
