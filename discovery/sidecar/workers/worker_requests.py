"""What the sidecar says to workers over their ready ports; the protocol is at `contract.READY_PORT`."""

import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvd_elastic.discovery.sidecar.workers.prober import MAX_LINE_BYTES, MAX_OPEN, nonblocking_socket
from hvd_elastic.mpijob.contract import READY_PORT
from hvd_elastic.system import descriptors
from hvd_elastic.system.job_key import NO_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequests:
    """Each goes to all of these addresses at once; where a number is returned, so many received it in time.

    `timeout_seconds` is for all of them together.
    """

    key: str = NO_KEY
    """The job's, as from `job_key.request_key`."""
    port: int = READY_PORT

    def request_checkpoint(self, addresses: Iterable[str], reason: str, *, timeout_seconds: float = 0.3) -> int:
        """Ask for a durable checkpoint at the next commit. `reason`: for the log of the worker that writes it."""
        return self._send(addresses, f"checkpoint {self.key} {' '.join(reason.split())}\n", timeout_seconds)

    def request_leave(self, addresses: Iterable[str]) -> int:
        """Tell training to leave once its state is durable."""
        return self._send(addresses, f"leave {self.key}\n", 1.0)

    def announce_no_successor(self, addresses: Iterable[str]) -> int:
        """Tell workers that leave that no other one can take their state over. It holds for NO_SUCCESSOR_SECONDS."""
        return self._send(addresses, f"no-successor {self.key}\n", 0.5)

    def announce_launcher(self, addresses: Sequence[str], *, timeout_seconds: float = 1.0) -> None:
        """Tell the workers that their launcher is there. One that does not listen hears it the next time."""
        for first in range(0, len(addresses), MAX_OPEN):
            self._send(addresses[first : first + MAX_OPEN], "launcher\n", timeout_seconds)

    def _send(self, addresses: Iterable[str], text: str, timeout_seconds: float) -> int:
        """Send a line to all at once, as far as there are descriptors; return how many received it in time."""
        line = text.encode("ascii", "replace")
        deadline = time.monotonic() + timeout_seconds
        waiting = deque(addresses)
        most_open = descriptors.limit() // 2  # the rest is for the API server and the reach test
        received = 0
        with selectors.DefaultSelector() as selector:
            while (waiting or selector.get_map()) and (left := deadline - time.monotonic()) > 0:
                while waiting and len(selector.get_map()) < most_open:
                    try:
                        connection = nonblocking_socket()
                    except OSError:  # none is left after all: go on when one of these has been answered
                        break
                    connection.connect_ex((waiting.popleft(), self.port))
                    selector.register(connection, selectors.EVENT_WRITE, connection)
                for key, events in selector.select(left):
                    if _was_sent(key.data, line, events):
                        # Closing before the worker's own line is read would send a reset, which may overtake it.
                        selector.modify(key.data, selectors.EVENT_READ, key.data)
                    else:
                        selector.unregister(key.data)
                        key.data.close()
                        received += bool(events & selectors.EVENT_READ)
            for key in list(selector.get_map().values()):
                key.data.close()
        return received


def _was_sent(connection: socket.socket, line: bytes, events: int) -> bool:
    """Whether the request was sent just now, so that the worker's line is still to be read."""
    try:
        if events & selectors.EVENT_WRITE:
            return connection.send(line) == len(line)
        connection.recv(MAX_LINE_BYTES)
    except OSError:
        pass
    return False
