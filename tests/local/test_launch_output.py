"""`hvd-elastic launch` and what it stands between: its output, its signals, its machine. The workers are shells."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LAUNCH = (sys.executable, "-m", "hvd_elastic.cli", "launch", "-np", "1", "--network-interface", "lo")
CHATTY = "yes 'a long line' | head -c 1000000; yes 'an error' | head -c 1000000 >&2; echo done > done"


def command(folder: Path, *arguments: str) -> list[str]:
    return [*LAUNCH, "-H", "localhost:1", "--run-dir", str(folder / "run"), *arguments]


def launch(folder: Path, *arguments: str, **streams: int) -> int:
    """Run a launcher to its end; returns its exit code."""
    argv = command(folder, *arguments)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(argv, cwd=folder, timeout=60, check=False, env=buffered, **streams).returncode  # type: ignore[call-overload, no-any-return]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("unwritable", [closed_pipe, full_disk])
@pytest.mark.parametrize("names", [("stdout",), ("stdout", "stderr")])
def test_an_unwritable_output_changes_nothing(tmp_path: Path, unwritable: object, names: Sequence[str]) -> None:
    assert callable(unwritable)
    descriptor = unwritable()
    try:
        assert launch(tmp_path, "sh", "-c", CHATTY, **dict.fromkeys(names, descriptor)) == 0
    finally:
        os.close(descriptor)
    assert (tmp_path / "done").exists()


def test_outputs_that_are_closed_change_nothing(tmp_path: Path) -> None:
    argv = shlex.join(command(tmp_path, "sh", "-c", CHATTY))
    assert subprocess.run(["sh", "-c", f"exec {argv} >&- 2>&-"], cwd=tmp_path, timeout=60, check=False).returncode == 0
    assert (tmp_path / "done").exists()


@pytest.mark.core
@pytest.mark.distribution
def test_the_scripts_code_gets_through_an_unwritable_output(tmp_path: Path) -> None:
    descriptor = full_disk()
    assert launch(tmp_path, "sh", "-c", f"{CHATTY}; exit 3", stdout=descriptor, stderr=descriptor) == 3
    os.close(descriptor)


# --- What the machine lacks ------------------------------------------------------------------------------------------


def refused(folder: Path, *arguments: str, interface: str = "lo") -> str:
    """What a launcher says that starts nothing."""
    argv = [interface if word == "lo" else word for word in command(folder, *arguments, "touch", "started")]
    done = subprocess.run(argv, cwd=folder, timeout=60, check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert not (folder / "started").exists()
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--metrics-port: {port}: cannot be served" in refused(tmp_path, "--metrics-port", str(port))


def test_all_that_cannot_be_used_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    flags = ("--output-filename", "file/outs", "--run-dir", "file/run")
    said = refused(tmp_path, *flags, interface="eth99")
    for flag in ("--network-interface", "--output-filename", "--run-dir"):
        assert flag in said


# --- How a command ends ----------------------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["nosuchcmd"], 127, "nosuchcmd: No such file or directory"),
        (["/etc/passwd"], 126, "/etc/passwd: Permission denied"),
        (["sh", "-c", "nosuchcmd"], 127, "nosuchcmd: not found"),
        ([sys.executable, "-S", "-c", "import sys; sys.exit(-1)"], 255, "exit code 255"),
    ],
)
def test_a_command_that_cannot_work_ends_the_job_at_once(
    tmp_path: Path, argv: Sequence[str], code: int, words: str
) -> None:
    done = subprocess.run(
        command(tmp_path, *argv), cwd=tmp_path, timeout=60, check=False, capture_output=True, text=True
    )
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


# --- Signals ---------------------------------------------------------------------------------------------------------

STUBBORN = "trap 'echo > told' TERM; echo $$ > new; mv new pid; while :; do sleep 0.05; done"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_leaves_no_stubborn_worker(tmp_path: Path, second: int) -> None:
    launcher = subprocess.Popen(command(tmp_path, "sh", "-c", STUBBORN), cwd=tmp_path)
    until((tmp_path / "pid").exists)
    worker = Path("/proc") / (tmp_path / "pid").read_text().strip()
    launcher.send_signal(signal.SIGTERM)
    until((tmp_path / "told").exists)
    launcher.send_signal(second)
    assert launcher.wait(30) == 128 + signal.SIGTERM
    assert not worker.exists()


def test_nohup_is_obeyed(tmp_path: Path) -> None:
    script = "echo > started; until [ -e go ]; do sleep 0.05; done"
    argv = ["sh", "-c", f"trap '' HUP; exec {shlex.join(command(tmp_path, 'sh', '-c', script))}"]
    launcher = subprocess.Popen(argv, cwd=tmp_path)
    until((tmp_path / "started").exists)
    launcher.send_signal(signal.SIGHUP)
    status = Path(f"/proc/{launcher.pid}/status").read_text()
    ignored = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    assert int(ignored, 16) & 1 << (signal.SIGHUP - 1)
    (tmp_path / "go").touch()
    assert launcher.wait(30) == 0
