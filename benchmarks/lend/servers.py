"""Servers as real processes: started where there is a GPU, the last one taken first, asked as a client asks."""

import http.client
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.peers.hosts import Host, free_port, script_environment

PROGRAM: Final = Path(__file__).with_name("model_server.py")
_QUESTION: Final = json.dumps([[0.5] * 64])
ANSWER_SECONDS: Final = 60.0
"""After which who asks goes away: an error."""

Command = Callable[[int], Sequence[str]]
"""What serves on a port."""


def model_server(folder: Path) -> Command:
    """The command of `model_server.py`, all of which share their weights."""
    return lambda port: [sys.executable, str(PROGRAM), f"--port={port}", f"--weights={folder / 'weights.pt'}"]


@dataclass(slots=True, kw_only=True)
class Server:
    """One of them."""

    name: str
    port: int
    host: Host
    called: float
    """When it was called for. Times are seconds of the monotonic clock."""
    started: float
    """When it had a GPU."""
    ready: float | None = None

    def look(self, now: float) -> bool:
        """Whether it listens. One that is taken is never asked anything again."""
        if self.ready is None and self.host.taken is None:
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", self.port)) == 0:
                    self.ready = now
        return self.ready is not None and self.host.taken is None


@dataclass(slots=True, kw_only=True)
class Servers:
    """All that there are, the oldest first; those that leave hold their GPU until nothing is left of them."""

    command: Command
    folder: Path
    held: list[Server] = field(default_factory=list)
    added: list[Server] = field(default_factory=list)
    """All that ever were started."""
    _called: list[float] = field(default_factory=list)
    """Since when each is called for that has no GPU yet."""

    def want(self, count: int, gpus: int, now: float) -> None:
        """Have so many, where `gpus` is how many GPUs they may hold together now."""
        self.held = [server for server in self.held if not server.host.gone(now)]
        staying = [server for server in self.held if server.host.taken is None]
        for server in staying[count:]:
            server.host.take(now)
        missing = max(0, count - len(staying))
        self._called = (self._called + [now] * missing)[:missing]
        while self._called and len(self.held) < gpus:
            self._start(self._called.pop(0), now)

    def _start(self, called: float, now: float) -> None:
        port, name = free_port(), f"server-{len(self.added)}"
        host = Host.start(self.command(port), script_environment(), self.folder / f"{name}.log")
        server = Server(name=name, port=port, host=host, called=called, started=now)
        self.held.append(server)
        self.added.append(server)

    def end(self) -> None:
        """Kill all of them."""
        for server in self.held:
            server.host.end()


def first_byte(address: str, port: int) -> float:
    """Ask a server, and return when the first byte of its answer came. Raises OSError and HTTPException."""
    connection = http.client.HTTPConnection(address, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", "/", _QUESTION)
        answer = connection.getresponse()
        if answer.status != http.client.OK or not answer.read(1):
            raise http.client.HTTPException(f"the server answered {answer.status}")
        came = time.monotonic()
        answer.read()
    finally:
        connection.close()
    return came
