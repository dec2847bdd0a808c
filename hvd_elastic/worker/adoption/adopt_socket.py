"""ADOPT_SOCKET, and its clients: launchers' commands, each with the descriptors that its output goes to."""

import contextlib
import logging
import os
import select
import shlex
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import ADOPT_FILE, ADOPT_SOCKET
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.worker.adoption import adopt_protocol
from hvd_elastic.worker.event_loop import EventLoop, Timer

log = logging.getLogger(__name__)

_BACKLOG: Final = 64
_REQUEST_TIMEOUT_SECONDS: Final = 5.0
"""Upper bound on the wait for a connection's request: one message of one byte."""

_SHEBANG_BYTES: Final = 126
"""The part of a script's first line that older kernels read (BINPRM_BUF_SIZE was 128)."""


class AdoptClient:
    """A launcher's command that waits for an exit code. It may send signals to pass on, and it may disconnect."""

    def __init__(self, loop: EventLoop, connection: socket.socket, request: adopt_protocol.AdoptRequest) -> None:
        self._loop = loop
        self._connection = connection
        self.request = request
        self.command = request.read()
        self.on_signal: Callable[[int], None] = lambda _number: None
        self.on_gone: Callable[[], None] = lambda: None
        self.is_gone = False

    @property
    def local_rank(self) -> int:
        """The slot that the command is for: HOROVOD_LOCAL_RANK, or 0 if that is not set."""
        text = self.command.environment.get("HOROVOD_LOCAL_RANK", "")
        return int(text) if text.isdigit() else 0

    def listen(self) -> None:
        """Watch for the client's signals and its end from now on."""
        self._loop.watch(self._connection.fileno(), self._read)

    def handed_over(self) -> None:
        """The process has the client's descriptors."""
        self.request.close_all_but_stderr()

    def say(self, message: str) -> None:
        """Write a line to the launcher's stderr, unless the launcher does not read it: nobody here may wait for it."""
        stderr, poll = self.request.stdio[2], select.poll()
        if stderr < 0:
            return
        poll.register(stderr, select.POLLOUT)
        if poll.poll(0):
            with contextlib.suppress(OSError):
                os.write(stderr, f"hvd-elastic: {message}\n".encode(errors="replace")[: select.PIPE_BUF])

    def finish(self, code: int, message: str = "") -> bool:
        """Say the message, send the exit code, disconnect. Return whether the client was still there to receive it."""
        if message:
            self.say(message)
        self.request.close()
        delivered = False
        if not self.is_gone:
            with contextlib.suppress(OSError):
                delivered = self._connection.send(bytes([code & 0xFF])) == 1
            self._disconnect()
        return delivered

    def _read(self) -> None:
        try:
            numbers = self._connection.recv(64)
        except BlockingIOError:
            return
        except OSError:
            numbers = b""
        for number in numbers:
            self.on_signal(number)
        if not numbers:
            self._disconnect()
            self.on_gone()

    def _disconnect(self) -> None:
        self.is_gone = True
        self._loop.forget(self._connection.fileno())
        self._connection.close()


class AdoptSocket:
    """Accepts requests of this user only, and calls `on_client` with each."""

    def __init__(self, loop: EventLoop, *, run_dir: Path, on_client: Callable[[AdoptClient], None]) -> None:
        self._loop = loop
        self._on_client = on_client
        self._path = run_dir / ADOPT_SOCKET
        self._listener = _listen(self._path)
        self._pending: dict[int, tuple[socket.socket, Timer]] = {}
        write_client(run_dir)
        loop.watch(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more requests."""
        self._loop.forget(self._listener.fileno())
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for descriptor in list(self._pending):
            self._release(descriptor).close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if _peer(connection) != os.getuid():
            log.warning("a process of user %d was refused at %s", _peer(connection), self._path)
            connection.close()
            return
        connection.setblocking(False)
        descriptor = connection.fileno()
        timer = self._loop.after(_REQUEST_TIMEOUT_SECONDS, lambda: self._release(descriptor).close())
        self._pending[descriptor] = connection, timer
        self._loop.watch(descriptor, lambda: self._receive(descriptor))

    def _receive(self, descriptor: int) -> None:
        connection = self._release(descriptor)
        request: adopt_protocol.AdoptRequest | None = None
        try:
            request = adopt_protocol.receive(connection)
            client = AdoptClient(self._loop, connection, request) if request is not None else None
        except (OSError, adopt_protocol.BadRequestError) as error:
            log.warning("a request at %s was refused: %s", self._path, error)
            client = None
        if client is not None:
            client.listen()
            self._on_client(client)
            return
        if request is not None:
            request.close()
        connection.close()

    def _release(self, descriptor: int) -> socket.socket:
        connection, timer = self._pending.pop(descriptor)
        timer.cancel()
        self._loop.forget(descriptor)
        return connection


def _listen(path: Path) -> socket.socket:
    """Bind through the folder's descriptor: an AF_UNIX address holds 107 bytes, and the path may be longer."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    before = os.umask(0o177)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.umask(before)
        os.close(folder)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _peer(connection: socket.socket) -> int:
    form = "3i"
    _, user, _ = struct.unpack(
        form, connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    )
    return int(user)


def write_client(run_dir: Path) -> Path:
    """Write RUN_DIR/adopt, an executable that starts in a few milliseconds, and return its path."""
    path = run_dir / ADOPT_FILE
    source = Path(__file__).with_name("adopt_client.py").read_text()
    source = source.replace('SOCKET = ""', f"SOCKET = {str(run_dir / ADOPT_SOCKET)!r}", 1)
    replace_file(path, _first_line() + source, mode=0o755)
    return path


def _first_line() -> str:
    # -I and -S: nothing from the user's environment or folder, and no site-packages, so it starts in milliseconds.
    interpreter = sys.executable
    direct = f"#!{interpreter} -IS"
    if len(os.fsencode(direct)) <= _SHEBANG_BYTES and not any(character.isspace() for character in interpreter):
        return direct + "\n"
    # Lines that sh and Python can both read: for sh a command, for Python a string.
    return f"""#!/bin/sh\n'''exec' {shlex.quote(interpreter)} -IS "$0" "$@"\n' '''\n"""
