"""`hvd-elastic launch` over a real sshd on this machine."""

import contextlib
import gc
import getpass
import logging
import os
import pwd
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
from typing import Final

import pytest

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.remote.ssh import SshCommandRunner
from hvd_elastic.mpijob.contract import Exit
from testbed.debian_programs import needed
from testbed.local.harness import ROOT, Job
from testbed.local.harness import job as make_job

pytestmark = pytest.mark.process


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
    needed("ssh")
    program = needed("sshd")
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
    process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stderr=(folder / "log").open("w"))
    daemon = Daemon(port, folder / "user", process, config)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            # Its banner comes from the connection's own process, which is therefore there to be waited for.
            if probe.connect_ex(("127.0.0.1", port)) == 0 and probe.recv(4):
                break
        if process.poll() is not None:
            pytest.skip(f"sshd does not run here: {(folder / 'log').read_text()}")
        time.sleep(0.02)
    _until(lambda: not daemon.sessions())  # the probe's has ended
    yield daemon
    for pid in daemon.sessions():
        with contextlib.suppress(ProcessLookupError):
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


@pytest.mark.core
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


def test_a_host_may_be_given_with_its_user(job: Job, sshd: Daemon) -> None:
    where = ["-H", f"{getpass.getuser()}@127.0.0.1:1", "--run-dir", str(job.run_dir)]
    ssh = ["-p", str(sshd.port), "-i", str(sshd.identity), "--network-interface", "lo"]
    job.start([sys.executable, "-m", "hvd_elastic.cli", "launch", "-np", "1", *where, *ssh], None)
    job.trains("127.0.0.1:0")
    assert sshd.sessions(), "the user may be another one than the launcher's"


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


@pytest.mark.core
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
    process = runner.start(host, ["sh", "-c", f"read go < {gate}; echo left"], {}).process
    runner.expect(())
    gate.write_text("go\n")
    assert process.stdout is not None
    assert (process.stdout.read(), process.wait(timeout=20)) == (b"left\n", 0)
    _until(lambda: not sshd.sessions())
    runner.close()


def test_a_worker_that_is_expected_has_its_connection_before_it_is_a_host(tmp_path: Path, sshd: Daemon) -> None:
    host = Host(address="127.0.0.1", slots=1, alias="uid-1", pod="a")
    worker, later = (ExpectedWorker(uid=uid, address="127.0.0.1") for uid in ("uid", "later"))
    runner = SshCommandRunner(tmp_path, port=sshd.port, identity_file=str(sshd.identity), changed=lambda: None)
    runner.expect((), (worker,))
    _until(lambda: runner.is_open(host))
    [session] = sshd.sessions()
    for hosts in ((host,), (), (host,)):  # its process dies, and another one comes
        runner.expect(hosts, (worker,))
        assert runner.is_open(host)
    assert sshd.sessions() == [session]
    runner.expect((), (later,))  # another pod has the address
    _until(lambda: runner.is_open(host) and session not in sshd.sessions())
    runner.expect(())
    _until(lambda: not sshd.sessions())
    runner.close()


def test_nothing_is_said_of_a_worker_whose_sshd_is_not_up_until_it_is_a_host(
    tmp_path: Path, sshd: Daemon, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshd refuses for as long as it does not run, and the pause between two tries is over when a host needs it."""
    monkeypatch.setattr(SshCommandRunner, "RETRY_SECONDS", (1000.0,))
    host = Host(address="127.0.0.1", slots=1, alias="uid-1", pod="a")
    worker = ExpectedWorker(uid="uid", address="127.0.0.1")
    sshd.process.kill()
    sshd.process.wait()
    caplog.set_level(logging.INFO)
    runner = SshCommandRunner(tmp_path, port=sshd.port, identity_file=str(sshd.identity), changed=lambda: None)
    runner.expect((), (worker,))
    [master] = runner._masters.values()
    _until(lambda: master.failures)
    assert not caplog.records
    runner.expect((host,), (worker,))
    _until(lambda: "Connection refused" in caplog.text)
    runner.close()


@pytest.fixture
def runner(tmp_path: Path, sshd: Daemon) -> Iterator[SshCommandRunner]:
    """With an open connection to HOST."""
    made = SshCommandRunner(tmp_path, port=sshd.port, identity_file=str(sshd.identity), changed=lambda: None)
    made.expect((HOST,))
    _until(lambda: made.is_open(HOST))
    yield made
    made.close()


HOST = Host(address="127.0.0.1", slots=1, alias="a", pod="a")


def test_a_code_that_ssh_uses_too_is_the_commands_own(runner: SshCommandRunner) -> None:
    command = runner.start(HOST, ["sh", "-c", "exit 255"], {})
    assert (command.wait(), command.last_words) == (255, "")


def test_a_lost_connection_is_no_exit_code(runner: SshCommandRunner, sshd: Daemon) -> None:
    command = runner.start(HOST, ["sh", "-c", "echo started; exec sleep 1000"], {})
    assert command.process.stdout is not None
    assert command.process.stdout.readline() == b"started\n"
    for pid in sshd.sessions():
        os.kill(pid, signal.SIGKILL)
    assert command.wait() == CONNECTION_LOST


def test_a_session_that_was_ended_here_is_no_exit_code(runner: SshCommandRunner) -> None:
    command = runner.start(HOST, ["sh", "-c", "echo started; exec sleep 1000"], {})
    assert command.process.stdout is not None
    assert command.process.stdout.readline() == b"started\n"
    command.process.terminate()
    assert command.wait() == CONNECTION_LOST


def test_a_code_that_ssh_uses_too_without_a_master(tmp_path: Path, sshd: Daemon) -> None:
    runner = SshCommandRunner(tmp_path, port=sshd.port, identity_file=str(sshd.identity), changed=lambda: None)
    assert runner.start(HOST, ["sh", "-c", "exit 255"], {}).wait() == 255


def test_what_ssh_says_is_not_the_commands_output(tmp_path: Path, sshd: Daemon) -> None:
    stranger = str(sshd.identity.with_name("host"))
    runner = SshCommandRunner(tmp_path, port=sshd.port, identity_file=stranger, changed=lambda: None)
    command = runner.start(HOST, ["true"], {})
    assert command.process.stderr is not None
    assert command.process.stderr.read() == b""
    assert command.wait() == CONNECTION_LOST
    assert "Permission denied" in command.last_words


def test_an_environment_larger_than_a_pipe_holds_up_nobody(runner: SshCommandRunner, sshd: Daemon) -> None:
    (session,) = sshd.sessions()
    os.kill(session, signal.SIGSTOP)
    variables = {f"VARIABLE_{number}": "x" * 50_000 for number in range(20)}
    started = runner.start(HOST, ["sh", "-c", "echo ${#VARIABLE_0} ${#VARIABLE_19}"], variables)
    os.kill(session, signal.SIGCONT)
    assert started.process.stdout is not None
    assert started.process.stdout.read() == b"50000 50000\n"
    assert started.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_silent_command_outlives_its_launcher(tmp_path: Path, sshd: Daemon, number: int) -> None:
    """It prints nothing, so a cut connection alone would not end it."""
    ssh = ["--always-ssh", "-p", str(sshd.port), "-i", str(sshd.identity), "--network-interface", "lo"]
    where = ["-H", "127.0.0.1:1", "--run-dir", str(tmp_path / "run")]
    launch = [sys.executable, "-m", "hvd_elastic.cli", "launch", "-np", "1", *where, *ssh]
    script = "echo $$ > pid; trap 'echo told > told; exit' TERM; (trap '' TERM; sleep 1000) & while :; do wait; done"
    launcher = subprocess.Popen(
        [*launch, "sh", "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    _until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    session = os.getsid(int((tmp_path / "pid").read_text()))
    launcher.send_signal(number)
    launcher.wait()
    _until(lambda: not _of_session(session))
    assert (tmp_path / "told").exists(), "SIGTERM comes first"
    _until(lambda: not sshd.sessions())


def _of_session(session: int) -> list[int]:
    """Its processes that have not ended, zombies left out."""
    text = subprocess.run(["ps", "-eo", "pid,sid,stat"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in text.splitlines()[1:]]
    return [int(pid) for pid, of, state in lines if int(of) == session and not state.startswith("Z")]


def _until(condition: Callable[[], object], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_connection_of_weeks_notes_no_host_and_keeps_no_command_that_has_ended(
    runner: SshCommandRunner, sshd: Daemon
) -> None:
    for _ in range(20):
        command = runner.start(HOST, ["true"], {})
        assert command.wait() == 0
    del command
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, subprocess.Popen) and "true" in str(each.args)]
    assert len(kept) <= 2
    known = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh" / "known_hosts"
    assert not known.exists() or f"]:{sshd.port} " not in known.read_text()


_TALKATIVE: Final = """\
#!/bin/sh
case "$*" in *ControlMaster=yes*) ;; *) exit 0 ;; esac
for word; do case $word in ControlPath=*) touch "${word#ControlPath=}" ;; esac; done
yes "an error that somebody should see" | head -c 200000 >&2
touch "${0%/*}/said-all"
exec sleep 1000
"""


def test_a_master_that_says_much_is_not_held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads a pipe that is full: all commands of that host would wait with it."""
    program = tmp_path / "ssh"
    program.write_text(_TALKATIVE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    runner = SshCommandRunner(tmp_path / "run", port=None, identity_file=None, changed=lambda: None)
    runner.expect((HOST,))
    _until((tmp_path / "said-all").exists)
    assert runner.is_open(HOST)
    runner.close()
