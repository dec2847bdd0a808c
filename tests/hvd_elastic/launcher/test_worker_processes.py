"""The processes of a launcher, and what is left of those of a former one."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.remote.command_runner import LocalCommandRunner
from hvd_elastic.launcher.remote.output_sinks import LossySink, StreamSink
from hvd_elastic.launcher.remote.worker_output import OutputReader, OutputStream
from hvd_elastic.launcher.remote.worker_processes import RECORD_FILE, WorkerProcesses, end_leftovers, start_ticks


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    "damage", [b"\0\0\0 12", b"123 ", b"1", b"1 2 3", b"-1 5", b"0 5", b"99999999999 5", b"\xff\xfe", b"1 \xd9\xa1"]
)
def test_a_damaged_record_costs_its_lines_only(tmp_path: Path, sleeper: subprocess.Popen[bytes], damage: bytes) -> None:
    entry = f"{sleeper.pid} {start_ticks(sleeper.pid)}".encode()
    (tmp_path / RECORD_FILE).write_bytes(b"\n".join((damage, entry, damage)))
    threading.Thread(target=sleeper.wait, daemon=True).start()  # reaps it, as init does for a killed launcher's
    assert end_leftovers(tmp_path) == 1
    sleeper.wait(20)
    assert not (tmp_path / RECORD_FILE).exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary())
def test_no_record_keeps_a_launcher_from_starting(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RECORD_FILE).write_bytes(content)
    assert end_leftovers(tmp_path) == 0


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / RECORD_FILE).mkdir()
    assert end_leftovers(tmp_path) == 0


def test_a_process_that_cannot_be_noted_runs_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / RECORD_FILE).mkdir()
    outputs = OutputReader()
    outputs.start()
    workers = WorkerProcesses(LocalCommandRunner(), outputs, tmp_path)
    ended: list[tuple[int, int, str]] = []
    over = threading.Event()

    def note_end(*end: object) -> None:
        ended.append(end)  # type: ignore[arg-type]
        over.set()

    sink = LossySink("stdout", StreamSink(sys.stdout))
    stdout, stderr = (OutputStream(name, (sink, None), lambda: "0") for name in ("stdout", "stderr"))
    host = Host(address="127.0.0.1", slots=1, alias="a")
    command = ["sh", "-c", "exit 3"]
    workers.start(7, host, command=command, environment={}, streams=(stdout, stderr), ended=note_end)
    assert over.wait(20)
    assert ended == [(7, 3, "")]
    assert "is in no record" in caplog.text
    workers.end_all()
    outputs.drain(20)
