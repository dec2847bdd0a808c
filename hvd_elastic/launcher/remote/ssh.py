"""Commands over ssh, through one connection per host that is opened ahead of need.

A command's environment travels over the encrypted channel's stdin: neither `ps` on either side nor sshd's log shows it.
Horovod puts the launcher's whole environment, secrets included, on the command line.
"""

import contextlib
import functools
import hashlib
import logging
import os
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import ENV_RUN_DIR

logger = logging.getLogger(__name__)

_OPTIONS: Final = (
    "BatchMode=yes",
    "LogLevel=ERROR",
    "GSSAPIAuthentication=no",
    "ConnectTimeout=5",
    # A host that stops answering is given up after 9 to 12 s; Horovod's ssh waits for TCP, which takes minutes.
    "ServerAliveInterval=3",
    "ServerAliveCountMax=3",
)
_NOT_SENT: Final = frozenset(
    {ENV_RUN_DIR, "HOME", "HOSTNAME", "LOGNAME", "OLDPWD", "PWD", "SHELL", "SHLVL", "USER", "_"}
)
"""Variables that describe the launcher's own pod and would be wrong on the worker."""

_SOCKET_PATH_LIMIT: Final = 80
"""A Unix socket's path has at most 108 bytes, and ssh adds a suffix of 17 while it creates the socket."""


class SshCommandRunner:
    """See CommandRunner. `changed` is called, from any thread, whenever a connection comes up or goes down."""

    RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)

    def __init__(
        self,
        run_dir: Path,
        *,
        port: int | None,
        identity_file: str | None,
        changed: Callable[[], None],
    ) -> None:
        self._port, self._identity_file, self._changed = port, identity_file, changed
        self._folder = _socket_folder(run_dir)
        self._lock = threading.Lock()
        self._masters: dict[str, _MasterConnection] = {}
        self._retired: list[_MasterConnection] = []

    def expect(self, hosts: tuple[Host, ...]) -> None:
        """See CommandRunner."""
        wanted = {host.address for host in hosts}
        with self._lock:
            gone = [self._masters.pop(address) for address in list(self._masters) if address not in wanted]
            new = [address for address in sorted(wanted) if address not in self._masters]
            for address in new:
                command, socket = self._master_command(address), self._socket(address)
                self._masters[address] = _MasterConnection(command, socket, self._changed)
            self._retired = [*filter(_MasterConnection.is_running, self._retired), *gone]
        for master in gone:
            master.retire()
        for address in new:
            self._masters[address].start()

    def is_open(self, host: Host) -> bool:
        """See CommandRunner."""
        master = self._masters.get(host.address)
        return master is not None and master.is_open

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """See CommandRunner."""
        exports = export_script(environment)
        process = subprocess.Popen(
            [*self._ssh(host.address), "-o", "ControlMaster=no", host.address, remote_command(command, len(exports))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        if master := self._masters.get(host.address):
            master.sessions.append(process)
        try:
            process.stdin.write(exports)
            process.stdin.close()
        except BrokenPipeError:
            pass  # ssh has ended; its exit code tells why.
        return process

    def close(self) -> None:
        """See CommandRunner."""
        self.expect(())
        for master in self._retired:
            master.drop()

    def _ssh(self, address: str) -> list[str]:
        options = [*_OPTIONS, f"ControlPath={self._socket(address)}"]
        if _asks_about_keys(address):
            options.append("StrictHostKeyChecking=no")
        argv = ["ssh", *(argument for option in options for argument in ("-o", option))]
        argv += ["-p", str(self._port)] if self._port is not None else []
        argv += ["-i", self._identity_file] if self._identity_file is not None else []
        return argv

    def _master_command(self, address: str) -> list[str]:
        return [*self._ssh(address), "-o", "ControlMaster=yes", "-N", address]

    def _socket(self, address: str) -> Path:
        return self._folder / hashlib.sha256(address.encode()).hexdigest()[:16]


class _MasterConnection:
    """OpenSSH's master connection to one host (ssh_config(5), ControlMaster). Opened again whenever it ends."""

    def __init__(self, command: list[str], path: Path, changed: Callable[[], None]) -> None:
        self.is_open = False
        self.sessions: list[subprocess.Popen[bytes]] = []
        """The commands that run over it."""
        self._command, self._path, self._changed = command, path, changed
        self._dropped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"ssh {command[-1]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def retire(self) -> None:
        """Accept no new command, and end with the last one that runs.

        A host that is to leave trains on until the next rendezvous: its connection must outlive its place in the list.
        """
        self._dropped.set()
        # Closes the control socket, whose path a later connection to the same address will need.
        # ControlMaster=no comes first and wins: with `yes` ssh would open a connection instead of asking this one.
        stop = ["ssh", "-o", "ControlMaster=no", *self._command[1:-1], "-O", "stop", self._command[-1]]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(stop, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=1)
        threading.Thread(target=self._end_after_sessions, name=f"ssh {self._command[-1]} ends", daemon=True).start()

    def _end_after_sessions(self) -> None:
        for session in self.sessions:
            session.wait()
        self.drop()

    def drop(self) -> None:
        self._dropped.set()
        if self._process:
            self._process.terminate()

    def _run(self) -> None:
        failures = 0
        while not self._dropped.is_set():
            self._path.unlink(missing_ok=True)
            opened = self._hold_open()
            failures = 0 if opened else failures + 1
            if not self._dropped.is_set():
                logger.info("the ssh connection to %s %s", self._command[-1], "was lost" if opened else "failed")
                retry = SshCommandRunner.RETRY_SECONDS
                self._dropped.wait(retry[min(failures, len(retry) - 1)])

    def _hold_open(self) -> bool:
        """Open the connection and wait until it ends. Returns whether it ever was open."""
        with subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:  # fmt: skip
            self._process = process
            if self._dropped.is_set():
                process.terminate()
            while process.poll() is None and not self._path.exists():
                time.sleep(0.005)
            opened = process.poll() is None
            self._report(opened)
            process.wait()
            self._report(False)
            if not opened and process.stderr and not self._dropped.is_set():
                logger.debug("ssh: %s", process.stderr.read().decode(errors="replace").strip())
        return opened

    def _report(self, is_open: bool) -> None:
        if self.is_open is not is_open:
            self.is_open = is_open
            self._changed()


def export_script(environment: Mapping[str, str]) -> bytes:
    """Shell text that sets the variables, whatever their values contain. The launcher's own are left out."""
    lines = (
        f"export {name}={shlex.quote(value)}\n"
        for name, value in environment.items()
        if name.isidentifier() and name.isascii() and name not in _NOT_SENT and not name.startswith("SSH_")
    )
    return "".join(lines).encode(errors="surrogateescape")


def remote_command(command: Sequence[str], exports_bytes: int) -> str:
    """What sshd's shell runs: it reads that many bytes of variables from stdin, then becomes the command.

    The working directory is the launcher's own where it exists, as with horovodrun.
    """
    script = (
        f'eval "$(head -c {exports_bytes})"; cd {shlex.quote(os.fspath(Path.cwd()))} 2>/dev/null; '
        f"exec {shlex.join(command)} </dev/null"
    )
    return f"exec /bin/sh -c {shlex.quote(script)}"


@functools.lru_cache(maxsize=4096)
def _asks_about_keys(address: str) -> bool:
    """Whether ssh would ask about an unknown host key. Only then is the check turned off, as horovodrun does.

    A configuration that says something else, such as pinned keys, is left alone.
    """
    config = subprocess.run(
        ["ssh", "-G", address], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    ).stdout
    return "stricthostkeychecking ask" in config


def _socket_folder(run_dir: Path) -> Path:
    folder = run_dir / "ssh"
    if len(os.fspath(folder.absolute())) > _SOCKET_PATH_LIMIT:
        folder = Path(tempfile.mkdtemp(prefix="hvd-elastic-"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
