"""Commands over ssh, through one connection per host that is opened ahead of need.

A command's environment travels over the encrypted channel's stdin: neither `ps` on either side nor sshd's log shows it.
Horovod puts the launcher's whole environment, secrets included, on the command line.

Afterwards stdin stays open, and tells the other side that somebody still wants the command: at its end, whether the
launcher ended the command, was killed, or lost the host, the command is ended there.
"""

import contextlib
import functools
import itertools
import logging
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST
from hvd_elastic.launcher.remote.command_runner import RunningCommand
from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.system.background_threads import error_words, start_thread
from hvd_elastic.system.child_processes import die_with_parent

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
"""A Unix socket's path has at most 107 bytes. Its name in the folder has a few digits, and ssh adds a suffix of 17
while it creates the socket."""

_SSH_ERROR: Final = 255
"""What ssh ends with after an error of its own. A command may end with it, too."""

_COMMANDS_OWN: Final = re.compile(rb"debug[12]: (?:Received exit status from master|Exit status) 255\r?$", re.MULTILINE)
"""ssh logs (LogLevel DEBUG2) an exit code that has come from the other side, over a master or without one. It does not
where its connection or its master was lost, or where it was ended itself."""

_PROGRESS: Final = ("debug", "OpenSSH_", "Authenticated to ", "Transferred: ", "Bytes per second: ")
"""How lines of its log begin that name no error."""

_LOG_TAIL_BYTES: Final = 1 << 16
_LAST_LINES: Final = 20
"""Of a master that ends, which are told."""

_WATCH: Final = (
    "exec 3<&0; "
    "((trap '' TERM HUP INT; while read -r gone; do :; done; "
    "kill -s TERM -- -$$; left=5; while kill -0 $$ && [ $left -gt 0 ]; do sleep 1; left=$((left - 1)); done; "
    "kill -s KILL -- -$$) <&3 >/dev/null 2>&1 &); "
    "exec 3<&-"
)
"""Ends the command, which leads a session of its own (sshd's), and all that it has started, once stdin ends: by
SIGTERM, and by SIGKILL after 5 s. It is no child of the command's, which may wait for all of its children."""


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
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._masters: dict[str, _MasterConnection] = {}
        self._retired: list[_MasterConnection] = []

    def expect(self, hosts: tuple[Host, ...], workers: tuple[ExpectedWorker, ...] = ()) -> None:
        listed = {host.address for host in hosts}
        uids = {worker.address: worker.uid for worker in workers}
        wanted = listed | uids.keys()
        with self._lock:
            gone = [
                self._masters.pop(address)
                for address, master in list(self._masters.items())
                if address not in wanted or not master.leads_to(uids.get(address))
            ]
            new = [
                self._masters.setdefault(address, self._master_to(address, uids.get(address)))
                for address in sorted(wanted - self._masters.keys())
            ]
            needed = [master for address, master in self._masters.items() if address in listed]
            self._retired = [*filter(_MasterConnection.is_running, self._retired), *gone]
        for master in gone:
            master.retire()
        for master in needed:
            master.need()
        for master in new:
            master.start()

    def _master_to(self, address: str, uid: str | None) -> "_MasterConnection":
        # A path of its own: the last master of this address may still be on its way to its end.
        path = self._folder / str(next(self._numbers))
        return _MasterConnection(address, path, self._ssh, self._changed, uid=uid)

    def is_open(self, host: Host) -> bool:
        master = self._masters.get(host.address)
        return master is not None and master.is_open

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> RunningCommand:
        exports = export_script(environment)
        master = self._masters.get(host.address)
        log = os.memfd_create("ssh-log")
        # ssh closes what it inherits. Its own words must not mix with the command's.
        first, *options = self._ssh(host.address, master.path if master else None)
        argv = [first, "-E", f"/proc/{os.getpid()}/fd/{log}", "-o", "LogLevel=DEBUG2", *options]
        try:
            process = subprocess.Popen(
                [*argv, "-o", "ControlMaster=no", host.address, remote_command(command, len(exports))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            os.close(log)
            raise
        session = SshSession(process, log)
        if master:
            master.add_session(process)
        session.send(exports)
        return session

    def close(self) -> None:
        self.expect(())
        for master in self._retired:
            master.drop()

    def _ssh(self, address: str, path: Path | None) -> list[str]:
        options = [*_OPTIONS, f"ControlPath={path or 'none'}"]
        if _asks_about_keys(address):
            # Nothing is asked of what it would keep: a line for each pod that there ever was.
            options += ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
        argv = ["ssh", *(argument for option in options for argument in ("-o", option))]
        argv += ["-p", str(self._port)] if self._port is not None else []
        argv += ["-i", self._identity_file] if self._identity_file is not None else []
        return argv


class SshSession(RunningCommand):
    """A command on another machine. `process` is the ssh client, which stands for it here."""

    def __init__(self, process: subprocess.Popen[bytes], log: int) -> None:
        super().__init__(process)
        self._log = log
        self._last_words = ""

    def send(self, data: bytes) -> None:
        """Write to its stdin, and leave that open. Returns at once: a silent host takes no more than a pipe holds."""
        threading.Thread(target=self._write, args=(data,), name="ssh stdin", daemon=True).start()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError, ValueError):  # ssh has ended; its exit code tells why.
                self.process.stdin.write(data)
                self.process.stdin.flush()
        except Exception as error:  # noqa: BLE001 - the command would wait for its environment for ever
            logger.warning("a command is ended, because its environment cannot be sent: %s", error_words(error))
            self.process.terminate()

    def wait(self) -> int:
        """See RunningCommand."""
        code = self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        log = os.pread(self._log, _LOG_TAIL_BYTES, max(0, os.fstat(self._log).st_size - _LOG_TAIL_BYTES))
        os.close(self._log)
        if code != _SSH_ERROR or _COMMANDS_OWN.search(log):
            return code
        lines = log.decode(errors="replace").splitlines()
        self._last_words = "\n".join(line for line in lines if not line.startswith(_PROGRESS))
        return CONNECTION_LOST

    @property
    def last_words(self) -> str:
        """See RunningCommand."""
        return self._last_words


class _MasterConnection:
    """OpenSSH's master connection to one host (ssh_config(5), ControlMaster). Opened again whenever it ends.

    Until somebody needs it nothing is said of failures: a worker that has just been made may not have its sshd yet.
    """

    def __init__(
        self,
        address: str,
        path: Path,
        ssh: Callable[[str, Path | None], list[str]],
        changed: Callable[[], None],
        *,
        uid: str | None,
    ) -> None:
        """`uid`: the pod's, if it is known."""
        self.is_open = False
        self.path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[subprocess.Popen[bytes]] = []
        """The commands that run over it, and some that have ended."""
        self._address, self._ssh, self._changed = address, ssh, changed
        self._uid = uid
        self._is_needed = False
        self._dropped = threading.Event()
        self._wake = threading.Event()
        """Ends the pause before the next try."""
        self.failures = 0
        """In a row."""
        self._complaint = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = start_thread(f"ssh {self._address}", self._run, log=logger, stopped=self._dropped)

    def need(self) -> None:
        """A host of the list is to be used through it: try at once, and say what is in the way."""
        if not self._is_needed:
            self._is_needed = True
            self._wake.set()

    def leads_to(self, uid: str | None) -> bool:
        """Whether it leads to the pod with this UID, as far as is known."""
        self._uid = self._uid or uid
        return uid is None or uid == self._uid

    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def add_session(self, process: subprocess.Popen[bytes]) -> None:
        """Note a command. A host may stay for weeks, and its process be started again and again."""
        self._sessions = [*(each for each in self._sessions if each.poll() is None), process]

    def retire(self) -> None:
        """Accept no new command, and end with the last one that runs.

        A host that is to leave trains on until the next rendezvous: its connection must outlive its place in the list.
        """
        self._give_up()
        start_thread(f"ssh {self._address} ends", self._end_after_sessions, log=logger)

    def _end_after_sessions(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            stop = [*self._ssh(self._address, self.path), "-o", "ControlMaster=no", "-O", "stop", self._address]
            subprocess.run(stop, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=1)
        for session in self._sessions:
            session.wait()
        self.drop()

    def drop(self) -> None:
        self._give_up()
        if self._process:
            self._process.terminate()

    def _give_up(self) -> None:
        self._dropped.set()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before the look: whoever gives it up later ends the pause
            if self._dropped.is_set():
                return
            opened = False
            try:
                self.path.unlink(missing_ok=True)
                opened = self._hold_open()
            except OSError as error:
                self._complain(f"ssh cannot be started: {error}")
            self.failures = 0 if opened else self.failures + 1
            if self._is_needed and not self._dropped.is_set():
                logger.info("the ssh connection to %s %s", self._address, "was lost" if opened else "failed")
            retry = SshCommandRunner.RETRY_SECONDS
            if self._wake.wait(retry[min(self.failures, len(retry) - 1)]):
                self.failures = 0

    def _complain(self, text: str) -> None:
        if not self._is_needed:
            return
        if text and text != self._complaint and not self._dropped.is_set():
            logger.warning("%s: %s", self._address, text)
        self._complaint = text

    def _hold_open(self) -> bool:
        """Open the connection and wait until it ends. Returns whether it ever was open."""
        with subprocess.Popen(
            [*self._ssh(self._address, self.path), "-o", "ControlMaster=yes", "-N", self._address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # This thread waits for it, so it ends with the launcher, however that ends. One system call, which takes no
            # lock that another thread may hold.
            preexec_fn=_end_with_the_launcher,  # noqa: PLW1509
        ) as process:
            self._process = process
            if self._dropped.is_set():
                process.terminate()
            while process.poll() is None and not self.path.exists():
                time.sleep(0.005)
            opened = process.poll() is None
            self._report(opened)
            assert process.stderr is not None
            # Read all the time: one that has filled its pipe in a month would write no more, and hold up all commands.
            said = deque(process.stderr, maxlen=_LAST_LINES)
            process.wait()
            self._report(False)
            if not opened:
                self._complain(b"".join(said).decode(errors="replace").strip())
        return opened

    def _report(self, is_open: bool) -> None:
        if self.is_open is not is_open:
            self.is_open = is_open
            self._changed()


def _end_with_the_launcher() -> None:
    die_with_parent(signal.SIGTERM)


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

    The command is ended when stdin ends.
    The working directory is the launcher's own where it exists, as with horovodrun.
    """
    script = (
        f'eval "$(head -c {exports_bytes})"; cd {shlex.quote(os.fspath(Path.cwd()))} 2>/dev/null; {_WATCH}; '
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
