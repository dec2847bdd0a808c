"""`hvd-elastic launch` over a real sshd on this machine."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.remote.ssh import SshCommandRunner
from hvd_elastic.mpijob.contract import Exit
from tests.local.harness import Job
from tests.local.harness import job as make_job

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no sshd on this machine")


@dataclass
class Daemon:
    port: int
    identity: Path
    process: subprocess.Popen[bytes]
    config: Path

    def sessions(self) -> list[int]:
        """The daemon's own processes for open connections."""
        text = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in text.splitlines()[1:]]
        return [pid for pid, parent in pairs if parent == self.process.pid]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short path: ssh's control socket may have at most 104 characters."""
    with tempfile.TemporaryDirectory(prefix="he") as folder:
        yield Path(folder)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Daemon]:
    folder = tmp_path / "sshd"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    config = folder / "config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"StrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nMaxStartups 100\n"
    )
    process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=(folder / "log").open("w"))
    daemon = Daemon(port, folder / "user", process, config)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        if process.poll() is not None:
            pytest.skip(f"sshd does not run here: {(folder / 'log').read_text()}")
        time.sleep(0.02)
    yield daemon
    for pid in daemon.sessions():
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with make_job(tmp_path) as made:
        yield made


def launch(job: Job, sshd: Daemon, *flags: str) -> None:
    where = ["--host-discovery-script", str(job.run_dir / "discover-hosts"), "--run-dir", str(job.run_dir)]
    ssh = ["--always-ssh", "-p", str(sshd.port), "-i", str(sshd.identity), "--network-interface", "lo"]
    command = [sys.executable, "-m", "hvd_elastic.cli", "launch", *flags, *where, *ssh, "--settle", "0.05"]
    job.start(command, None)


def test_trains_and_resizes_over_ssh(job: Job, sshd: Daemon) -> None:
    job.environment["VALUE"] = value = "a 'quoted' $HOME \"value\"\nof two lines"
    job.hosts("a", "b")
    launch(job, sshd, "-np", "2", "--min-np", "1")
    job.trains("a:0", "b:0")
    assert f"VALUE={value}\0".encode() in Path(f"/proc/{job.pid('a:0')}/environ").read_bytes()
    job.hosts("a", "b", "c")
    job.trains("a:0", "b:0", "c:0")
    job.hosts("b", "c")
    job.trains("b:0", "c:0")
    job.check_no_step_was_lost()
    assert "Permanently added" not in job.said()
    masters = list((job.run_dir / "ssh").glob("*")) or list(Path("/tmp").glob("hvd-elastic-*/*"))
    assert masters, "the connection is opened ahead of need"


def test_no_secret_is_on_a_command_line(job: Job, sshd: Daemon) -> None:
    job.environment["AWS_SECRET_ACCESS_KEY"] = "very-secret"
    job.hosts("a")
    launch(job, sshd, "-np", "1")
    job.trains("a:0")
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "very-secret" not in lines
    assert b"very-secret" in Path(f"/proc/{job.pid('a:0')}/environ").read_bytes()


def test_the_launcher_does_not_wait_for_workers_that_it_cannot_reach(job: Job, sshd: Daemon) -> None:
    """Unlike adopted scripts, these do not notice that their connections were cut."""
    job.hosts("a", "b")
    launch(job, sshd, "-np", "1", "--elastic-timeout", "10")
    job.trains("a:0", "b:0")
    old = job.left()
    for pid in sshd.sessions():
        os.kill(pid, signal.SIGKILL)
    # With its connection a host is gone, and blacklisted for good without a cooldown range.
    assert job.ends() == Exit.MIN_WORKERS_TIMEOUT
    assert "every worker that held the state was taken away" in job.said()
    for pid in old:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_lost_master_is_opened_again(job: Job, sshd: Daemon) -> None:
    job.hosts("a")
    launch(job, sshd, "-np", "2", "--elastic-timeout", "60", "--verbose")
    job.until(sshd.sessions, "the master to a, though there are too few slots to start")
    first = sshd.sessions()
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    job.until(lambda: sshd.sessions() and not set(first) & set(sshd.sessions()), "a new master")
    job.hosts("a", "b")
    job.trains("a:0", "b:0")


def test_a_host_without_sshd_is_not_used_until_it_answers(job: Job, sshd: Daemon) -> None:
    os.kill(sshd.process.pid, signal.SIGSTOP)
    job.hosts("a")
    launch(job, sshd, "-np", "1")
    job.until((job.run_dir / "status.json").exists, "the launcher has seen the host")
    assert not job.events("started")
    os.kill(sshd.process.pid, signal.SIGCONT)
    job.trains("a:0")
    assert job.status()["blacklisted"] == []


def test_a_leaving_host_keeps_its_connection_until_its_process_has_left(tmp_path: Path, sshd: Daemon) -> None:
    """The process trains on until the next rendezvous; if its connection were cut it would be ended at once."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    host = Host(address="127.0.0.1", slots=1, alias="a", pod="a")
    runner = SshCommandRunner(tmp_path, port=sshd.port, identity_file=str(sshd.identity), changed=lambda: None)
    runner.expect((host,))
    _until(lambda: runner.is_open(host))
    process = runner.start(host, ["sh", "-c", f"read go < {gate}; echo left"], {})
    runner.expect(())
    gate.write_text("go\n")
    assert process.stdout is not None
    assert (process.stdout.read(), process.wait(timeout=20)) == (b"left\n", 0)
    _until(lambda: not sshd.sessions())
    runner.close()


def _until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
