"""Workers' ready ports: real sockets on addresses of 127.0.0.0/8 and on ::1, one listener for all of them."""

import contextlib
import errno
import json
import socket
import threading
import time

from hvd_elastic.mpijob.contract import WorkerState

NONCE = "0123456789abcdef" * 2
"""What these workers give who asks for a challenge."""


class Workers:
    """Answers on one port of every loopback address, as the worker with that address would."""

    def __init__(self) -> None:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self.listener = socket.create_server(("", 0), family=family, backlog=1024, dualstack_ipv6=both)
        self.port: int = self.listener.getsockname()[1]
        self.lines: dict[str, bytes] = {}
        """What a worker answers, by address. The default is the line of a worker that waits."""
        self.reports: dict[str, dict[str, object]] = {}
        """What a worker reports, by address."""
        self.answers: dict[str, bytes] = {}
        """The same as it is sent, where it is no report."""
        self.silent: set[str] = set()
        """Addresses that accept and send nothing: a lost node."""
        self.old: set[str] = set()
        """Addresses that know no challenge: workers of 0.1, or a stranger who wants a word that 0.1 believes."""
        self.closed: set[str] = set()
        """Addresses that close at once."""
        self.received: list[tuple[str, str]] = []
        """Address and line of each client that sent one."""
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def say(
        self, address: str, *, generation: int = 0, state: WorkerState = WorkerState.WAITING, step: int = -1
    ) -> None:
        self.lines[address] = f"hvd-elastic 1 {generation} {state} {step} -1\n".encode()

    def report(self, address: str, **parts: object) -> None:
        """Change these parts of what the worker reports."""
        self.reports[address] = {**self.reports.get(address, {}), **parts}

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for held in self._held:
            held.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError as error:
                if error.errno != errno.EMFILE:
                    return
                time.sleep(0.01)  # a test has left its process none
                continue
            address = connection.getsockname()[0].removeprefix("::ffff:")
            if address in self.silent:
                self._held.append(connection)
            elif address in self.closed:
                connection.close()
            else:
                threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    def _answer(self, connection: socket.socket, address: str) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(self.lines.get(address, b"hvd-elastic 1 0 waiting -1 -1\n"))
            connection.settimeout(5)
            line = connection.recv(256)
            if line == b"challenge\n":
                connection.sendall(b"\n" if address in self.old else f"{NONCE}\n".encode())
                line = connection.recv(256)
            if line:
                self.received.append((address, line.decode().rstrip()))
            if line == b"report\n":
                report = json.dumps(self.reports.get(address, {})).encode() + b"\n"
                connection.sendall(self.answers.get(address, report))
