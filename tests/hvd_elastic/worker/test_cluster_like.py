"""A pod as Kubernetes makes one: PID 1 of its own namespace, uid 1000, no capabilities, a read-only root; real sshd.

Needs root (for the namespaces) and, where ssh is in play, openssh-server; HVD_ELASTIC_TEST_SSHD names one elsewhere.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from hvd_elastic.mpijob.contract import SSH_PORT
from hvd_elastic.system import child_processes
from hvd_elastic.worker.sshd import COMMAND
from testbed.debian_programs import needed
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Pod, Yard, eventually, fresh_address, make_yard
from tests.hvd_elastic.worker.test_adoption import WAITER, first_line
from tests.hvd_elastic.worker.test_leaving import TRAINS_UNTIL_REMOVED

ROOT: Final = Path(__file__).parents[3]
USER: Final = "mpiuser"

ROOM: Final = """
set -e
mount --make-rprivate /
number=0
for folder in $SHOWN; do  # what runs, where it lies in a folder that only root may enter
    number=$((number + 1))
    mkdir -p "$YARD/stage/$number"
    mount --bind "$folder" "$YARD/stage/$number"
done
for folder in $CLOSED; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
number=0
for folder in $SHOWN; do
    number=$((number + 1))
    mkdir -p "$folder"
    mount --move "$YARD/stage/$number" "$folder"
done
mount --bind "$YARD/passwd" /etc/passwd
mount --bind "$YARD" "$YARD"
mount -o remount,bind,ro /
exec setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
"""

SSHD_CONFIG: Final = """
ListenAddress {address}
Port {port}
PidFile none
HostKey {folder}/id_rsa
AuthorizedKeysFile {folder}/id_rsa.pub
StrictModes no
UsePAM no
"""


def possible() -> bool:
    if os.getuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    probe = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "sh",
        "-c",
        "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt",
    ]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = [pytest.mark.process, pytest.mark.skipif(not possible(), reason="needs root and namespaces")]


@pytest.fixture
def room() -> Iterator[Yard]:
    """A yard that another user may enter; pytest's own folders are for one user only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{USER}:x:1000:1000::{folder}:/bin/sh\n")
        yield make_yard(folder)


def wrapper(room: Yard) -> list[str]:
    """What stands in for the kubelet and runc."""
    for path in (room.folder, *room.folder.rglob("*")):
        os.chown(path, 1000, 1000)
    runs = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    closed = {folder: outermost for folder in runs if (outermost := _outermost_closed(folder))}
    shown = [folder for folder in closed if closed.keys().isdisjoint(folder.parents)]
    variables = [
        f"YARD={room.folder}",
        f"SHOWN={' '.join(map(str, shown))}",
        f"CLOSED={' '.join(map(str, set(closed.values())))}",
    ]
    unshared = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    return ["env", *variables, *unshared, "sh", "-c", ROOM, "sh"]


def _outermost_closed(folder: Path) -> Path | None:
    return next((parent for parent in reversed(folder.parents) if not parent.stat().st_mode & 0o001), None)


def pid_one(pod: Pod) -> int:
    (pid,) = child_processes.children(pod.process.pid)
    return pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """ssh with the job's key, as the launcher's pod has it."""

    room: Yard
    address: str
    program: str
    """sshd's."""

    @property
    def sshd(self) -> list[str]:
        """The product's own command line, with this configuration."""
        return [self.program, *COMMAND[1:], "-f", str(self.room.folder / "sshd_config")]

    def ssh(self, command: str) -> subprocess.Popen[bytes]:
        options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        flags = [flag for option in options for flag in ("-o", option)]
        target = [
            "-n",
            "-p",
            str(SSH_PORT),
            "-i",
            str(self.room.folder / "root_key"),
            f"{USER}@{self.address}",
            command,
        ]
        return subprocess.Popen(["ssh", *flags, *target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def launcher(room: Yard) -> Launcher:
    needed("ssh")
    sshd = os.environ.get("HVD_ELASTIC_TEST_SSHD") or needed("sshd")
    address, key = fresh_address(), room.folder / "id_rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(key)], check=True)
    shutil.copy(key, room.folder / "root_key")  # ssh refuses a private key that others own
    config = SSHD_CONFIG.format(address=address, port=SSH_PORT, folder=room.folder)
    (room.folder / "sshd_config").write_text(config)
    return Launcher(room=room, address=address, program=sshd)


@pytest.mark.core
def test_as_pid_1_of_user_1000_with_a_read_only_root(room: Yard) -> None:
    room.write(TRAINS_UNTIL_REMOVED.replace('print("up"', 'print("up", os.getuid(), os.getppid()'))
    with room.pod(wrapper=wrapper(room), env={"HOME": "/"}) as pod:
        pod.ready()
        client = in_room(pod, room)
        assert first_line(client) == "up 1000 1\n"
        os.kill(pid_one(pod), signal.SIGTERM)
        pod.ready(state="leaving")
        (room.folder / "removed").touch()
        assert client.wait(DEADLINE_SECONDS) == 77
        assert pod.process.wait(DEADLINE_SECONDS) == 0


def in_room(pod: Pod, room: Yard) -> subprocess.Popen[bytes]:
    """Run RUN_DIR/adopt inside the pod, as its user."""
    enter = ["nsenter", "--target", str(pid_one(pod)), "--mount", "--pid", "--setuid", "1000", "--setgid", "1000"]
    command = [*enter, f"--wd={room.folder}", str(pod.run_dir / "adopt"), "python", "train.py"]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    pod.clients.append(client)
    return client


@pytest.mark.core
def test_over_ssh_a_cut_connection_ends_training_and_the_last_exit_code_travels(room: Yard, launcher: Launcher) -> None:
    room.write(WAITER)
    with room.pod(wrapper=wrapper(room), options=(), sshd=launcher.sshd) as pod:
        (room.folder / "root_key").chmod(0o600)
        os.chown(room.folder / "root_key", 0, 0)
        pod.ready()
        command = f"cd {room.folder}; env HOROVOD_LOCAL_RANK=0 {pod.run_dir}/adopt python train.py"
        client = eventually(lambda: training(launcher.ssh(command), pod), "training over ssh")
        client.kill()
        client.wait()
        pod.ready(generation=2)

        client = eventually(lambda: training(launcher.ssh(command), pod), "training over ssh again")
        os.kill(pid_one(pod), signal.SIGTERM)
        pod.ready(generation=2, state="leaving")
        (trainer,) = [pid for pid, line in pod.processes().items() if "hvd_elastic.worker.standby.standby" in line]
        os.kill(trainer, signal.SIGTERM)
        output, _ = client.communicate(timeout=DEADLINE_SECONDS)
        assert (client.returncode, output) == (5, b"stopped by 15\n")
        assert pod.process.wait(DEADLINE_SECONDS) == 0
        assert "Server listening" not in pod.log_text


def training(client: subprocess.Popen[bytes], pod: Pod) -> subprocess.Popen[bytes] | None:
    """The client once it trains; None where sshd is not up yet."""
    pod.clients.append(client)
    return client if first_line(client).startswith("training") else None
