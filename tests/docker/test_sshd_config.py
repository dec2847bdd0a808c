"""The real sshd with the image's own configuration: what strangers may hold up, and what a session may forward."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.debian_programs import needed

CONFIG = Path(__file__).parents[2] / "docker/sshd_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    port: int
    key: Path

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        flags = [flag for option in options for flag in ("-o", option)]
        user = pwd.getpwuid(os.getuid()).pw_name
        command = ["ssh", "-F", "none", "-n", *flags, "-i", str(self.key), "-p", str(self.port)]
        return subprocess.run(
            [*command, f"{user}@127.0.0.1", *words], capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    needed("ssh")
    program, key = needed("sshd"), tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(tmp_path / "key.pub", tmp_path / "authorized_keys")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    own = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": key,
        "AuthorizedKeysFile": tmp_path / "authorized_keys",
    }
    flags = [flag for name, value in own.items() for flag in ("-o", f"{name}={value}")]
    with subprocess.Popen([program, "-D", "-f", str(CONFIG), *flags]) as process:
        try:
            while not _answers(port):
                assert process.poll() is None
            yield Daemon(port=port, key=key)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        return connection.recv(4) == b"SSH-"
    return False


def test_a_stranger_who_never_logs_in_keeps_no_launcher_out(daemon: Daemon) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(300):
            there, source = ("127.0.0.1", daemon.port), ("127.0.0.9", 0)
            held.enter_context(socket.create_connection(there, source_address=source, timeout=20)).sendall(b"SSH-")
        done = daemon.ssh("echo", "in")
        assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr


@pytest.mark.parametrize("forward", ["{folder}/remote:{folder}/here", "0:127.0.0.1:1"])
def test_a_session_forwards_nothing(daemon: Daemon, tmp_path: Path, forward: str) -> None:
    done = daemon.ssh("-o", "ExitOnForwardFailure=yes", "-R", forward.format(folder=tmp_path), "true")
    assert (done.returncode, "forwarding failed" in done.stderr) == (255, True), done.stderr
