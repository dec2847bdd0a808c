"""The supervisor of `horovodrun` and signals. A shell stands for horovodrun."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from hvd_elastic.cli.this_machine import horovodrun
from hvd_elastic.discovery.sidecar.launcher.launcher_pods import last_word
from hvd_elastic.discovery.snapshot import Snapshot, uptime_seconds, write_snapshot
from hvd_elastic.horovod import patch_set
from hvd_elastic.launcher.core.supervision import Finish
from hvd_elastic.launcher.horovodrun import supervisor as supervisor_module
from hvd_elastic.mpijob.contract import HOSTS_SCRIPT, Exit
from hvd_elastic.system.child_processes import children

SUPERVISE = """
import sys
from pathlib import Path
from hvd_elastic.launcher.horovodrun import supervisor
from hvd_elastic.launcher.horovodrun.horovodrun_command import HorovodrunCommand
supervisor._END_SECONDS = 1000.0
run_dir, script = sys.argv[1:]
command = HorovodrunCommand(program=("sh", "-c", script), arguments=(), start=1, minimum=1, run_dir=Path(run_dir),
    training_words=0)
sys.exit(supervisor.supervise(command).exit_code)
"""
SUPERVISE_ARGUMENTS = """
import sys
from hvd_elastic.launcher.horovodrun import horovodrun_command, supervisor
sys.exit(supervisor.supervise(horovodrun_command.parse(sys.argv[1:])).exit_code)
"""
WORKER = "echo > started; until [ -e over ]; do sleep 0.1; done"
STUBBORN = f"trap '' TERM; sh -c 'sh -c \"{WORKER}\" & wait' & wait"
"""horovodrun, its helper, and a worker."""


def listed(run_dir: Path) -> Path:
    """A folder in which the sidecar has listed no host."""
    run_dir.mkdir(exist_ok=True)
    now = uptime_seconds()
    write_snapshot(run_dir, Snapshot(hosts=(), generation=1, uptime_seconds=now, unix_seconds=int(time.time())))
    return run_dir


@pytest.mark.core
@pytest.mark.process
def test_horovodrun_imports_before_there_is_a_list_and_begins_with_it(tmp_path: Path) -> None:
    pytest.importorskip("horovod")
    script = tmp_path / HOSTS_SCRIPT
    arguments = ["-np", "1", "--host-discovery-script", str(script), "true"]
    with supervising(tmp_path, *arguments) as process:
        _until(lambda: any(map(_has_imported_horovod, children(process.pid))))
        assert process.poll() is None
        script.write_text("#!/bin/sh\necho > asked\nexit 1\n")  # the first failure of it ends horovodrun
        script.chmod(0o755)
        listed(tmp_path)
        assert process.wait(60) != 0
        assert (tmp_path / "asked").exists(), "horovodrun has begun"


def _has_imported_horovod(pid: int) -> bool:
    with contextlib.suppress(OSError):
        names = Path(f"/proc/{pid}/maps").read_text()
        return "stock_horovodrun" in Path(f"/proc/{pid}/cmdline").read_text() and "_psutil" in names
    return False


@pytest.mark.process
def test_a_horovodrun_that_waits_ends_with_its_supervisor(tmp_path: Path) -> None:
    arguments = ["-np", "1", "--host-discovery-script", str(tmp_path / HOSTS_SCRIPT), "true"]
    with supervising(tmp_path, *arguments) as process:
        _until(lambda: children(process.pid))
        waiting = children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert last_word(tmp_path).sentence == "ended by SIGTERM"
    assert not any(Path(f"/proc/{pid}").exists() for pid in waiting)


@contextmanager
def supervising(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor of the real horovodrun with these arguments."""
    process = subprocess.Popen([sys.executable, "-c", SUPERVISE_ARGUMENTS, *arguments], cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def supervisor(folder: Path, *, ignoring: str = "") -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", SUPERVISE, str(listed(folder / "run")), STUBBORN]
    nohup = ["sh", "-c", f"trap '' {ignoring}; exec \"$@\"", "sh"] if ignoring else []
    process = subprocess.Popen([*nohup, *argv], cwd=folder, start_new_session=True)
    try:
        _until((folder / "started").exists)
        yield process
    finally:
        (folder / "over").touch()
        process.kill()
        process.wait()


@pytest.mark.process
def test_a_second_signal_ends_a_stubborn_horovodrun(tmp_path: Path) -> None:
    with supervisor(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in {128 + signal.SIGTERM, 128 + signal.SIGINT}


@pytest.mark.core
@pytest.mark.process
def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    with supervisor(tmp_path, ignoring="HUP") as process:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        assert process.wait(30) in {128 + signal.SIGTERM, 128 + signal.SIGINT}


@pytest.mark.core
@pytest.mark.process
@pytest.mark.parametrize(
    ("last_words", "code", "sentence"),
    [
        ("number of resets during elastic job exceeded limit: 3", Exit.RESET_LIMIT, "its reset limit is reached"),
        ("Exit code: 5", 5, "NameError: no x"),
    ],
)
def test_the_sidecar_can_read_how_the_job_has_ended(tmp_path: Path, last_words: str, code: int, sentence: str) -> None:
    worker = "echo '[0]<stderr>:NameError: no x'; echo 'Process 0 exit with status code 5.'"
    script = f"{worker}; echo 'RuntimeError: {last_words}'; exit 1"
    argv = [sys.executable, "-c", SUPERVISE, str(listed(tmp_path)), script]
    process = subprocess.run(argv, check=False, timeout=60)
    assert process.returncode == code
    assert (last_word(tmp_path).exit_code, last_word(tmp_path).sentence) == (code, sentence)


@pytest.mark.parametrize("patches", [(), ("cxx-standard", "worker-addresses")])
def test_it_warns_of_a_horovod_that_runs_what_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, patches: tuple[str, ...]
) -> None:
    monkeypatch.setattr(supervisor_module, "supervise", lambda _: Finish(exit_code=0, reason=""))
    monkeypatch.setattr(horovodrun, "configure", lambda **_: None)
    monkeypatch.setattr(patch_set, "installed_patches", lambda: patches)
    script = str(tmp_path / "discover-hosts")
    done = CliRunner().invoke(horovodrun.command, ["-np", "1", "--host-discovery-script", script, "python", "train.py"])
    assert done.exit_code == 0
    assert ("CVE-2024-10190" in caplog.text) is not bool(patches)


def _until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
