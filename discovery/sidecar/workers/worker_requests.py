"""What the sidecar says to workers over their ready ports; the protocol is at `contract.READY_PORT`."""

import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from hvd_elastic.discovery.sidecar.workers.prober import MAX_LINE_BYTES, MAX_OPEN, nonblocking_socket
from hvd_elastic.mpijob.contract import READY_PORT
from hvd_elastic.system import descriptors
from hvd_elastic.system.job_key import NO_KEY, sign

_NONCE: Final = re.compile(rb"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequests:
    """Each goes to all of these addresses at once; where a number is returned, so many received it in time.

    `timeout_seconds` is for all of them together. What the job's key signs goes to nobody else: an address may be
    another pod's by now.
    """

    key: str = NO_KEY
    """The job's, as from `job_key.request_key`."""
    port: int = READY_PORT

    def request_checkpoint(self, addresses: Iterable[str], reason: str, *, timeout_seconds: float = 1.0) -> int:
        """Ask for a durable checkpoint at the next commit. `reason`: for the log of the worker that writes it."""
        return self._send(addresses, self._signed("checkpoint", reason), timeout_seconds)

    def request_leave(self, addresses: Iterable[str]) -> int:
        """Tell training to leave once its state is durable."""
        return self._send(addresses, self._signed("leave"), 1.0)

    def announce_no_successor(self, addresses: Iterable[str]) -> int:
        """Tell workers that leave that no other one can take their state over. It holds for NO_SUCCESSOR_SECONDS."""
        return self._send(addresses, self._signed("no-successor"), 0.5)

    def announce_launcher(self, addresses: Sequence[str], *, timeout_seconds: float = 1.0) -> None:
        """Tell the workers that their launcher is there. One that does not listen hears it the next time."""
        for first in range(0, len(addresses), MAX_OPEN):
            self._send(addresses[first : first + MAX_OPEN], lambda: _Request(b"launcher\n"), timeout_seconds)

    def _signed(self, verb: str, reason: str = "") -> "Callable[[], _Request]":
        plain = " ".join(reason.encode("ascii", "replace").decode().split())

        def answer(nonce: str) -> bytes:
            return f"{verb} {sign(self.key, nonce, f'{verb} {plain}')} {plain}\n".encode()

        return lambda: _Request(b"challenge\n", answer)

    def _send(self, addresses: Iterable[str], new_request: "Callable[[], _Request]", timeout_seconds: float) -> int:
        """Send it to all at once, as far as there are descriptors; return how many received it in time."""
        deadline = time.monotonic() + timeout_seconds
        waiting = deque(addresses)
        most_open = descriptors.limit() // 2  # the rest is for the API server and the reach test
        received = 0
        with selectors.DefaultSelector() as selector:
            while (waiting or selector.get_map()) and (left := deadline - time.monotonic()) > 0:
                while waiting and len(selector.get_map()) < most_open:
                    try:
                        connection = nonblocking_socket(waiting[0])
                    except OSError:  # none is left after all: go on when one of these has been answered
                        break
                    connection.connect_ex((waiting.popleft(), self.port))
                    selector.register(connection, selectors.EVENT_WRITE, new_request())
                for key, events in selector.select(left):
                    connection, request = cast("socket.socket", key.fileobj), key.data
                    if wanted := request.go_on(connection, events):
                        selector.modify(connection, wanted, request)
                    else:
                        selector.unregister(connection)
                        connection.close()
                        received += request.is_received
            for key in list(selector.get_map().values()):
                cast("socket.socket", key.fileobj).close()
        return received


class _Request:
    """One connection's part: what is to be sent, and how far it is."""

    def __init__(self, first: bytes, answer: Callable[[str], bytes] | None = None) -> None:
        """`answer`: what follows the worker's nonce. None: `first` is all."""
        self._to_send: bytes = first
        self._answer = answer
        self._lines = b""
        self.is_received = False

    def go_on(self, connection: socket.socket, events: int) -> int:
        """Send or read; return the events to wait for next. 0: it has ended."""
        try:
            if events & selectors.EVENT_WRITE:
                return selectors.EVENT_READ if connection.send(self._to_send) == len(self._to_send) else 0
            data = connection.recv(MAX_LINE_BYTES)
        except OSError:
            return 0
        # Closing before the worker's own line is read would send a reset, which may overtake the request.
        self._lines += data
        if self._answer is None:
            self.is_received = True
            return 0
        _, _, nonce = self._lines.partition(b"\n")
        if data and not nonce.endswith(b"\n") and len(self._lines) < MAX_LINE_BYTES:
            return selectors.EVENT_READ
        if _NONCE.fullmatch(nonce.rstrip(b"\n")) is None:  # a worker of 0.1, or nobody's
            return 0
        self._to_send, self._answer = self._answer(nonce.decode().strip()), None
        return selectors.EVENT_WRITE
