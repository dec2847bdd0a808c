"""What the sidecar says to workers over their ready ports; the protocol is at `contract.READY_PORT`."""

import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence

from hvd_elastic.discovery.sidecar.workers.prober import MAX_LINE_BYTES, MAX_OPEN, nonblocking_socket
from hvd_elastic.mpijob.contract import READY_PORT
from hvd_elastic.system import descriptors
from hvd_elastic.system.job_key import NO_KEY


def request_checkpoint(
    addresses: Iterable[str], reason: str, key: str = NO_KEY, *, port: int = READY_PORT, timeout_seconds: float = 0.3
) -> int:
    """Ask the workers for a durable checkpoint at their next commit; return how many received the request in time.

    Args:
        addresses: the workers'.
        reason: for the log of the worker that writes it.
        key: the job's, as from `job_key.request_key`.
        port: the workers' ready port.
        timeout_seconds: for all of them together.
    """
    line = f"checkpoint {key} {' '.join(reason.split())}\n"
    return _send(addresses, line, port=port, timeout_seconds=timeout_seconds)


def request_leave(addresses: Iterable[str], key: str, *, port: int = READY_PORT, timeout_seconds: float = 1.0) -> int:
    """Tell the workers' training to leave once its state is durable; return how many heard it in time.

    The arguments are those of `request_checkpoint`.
    """
    return _send(addresses, f"leave {key}\n", port=port, timeout_seconds=timeout_seconds)


def announce_no_successor(
    addresses: Iterable[str], key: str, *, port: int = READY_PORT, timeout_seconds: float = 0.5
) -> int:
    """Tell workers that leave that no other one can take their state over; return how many heard it in time.

    It holds for NO_SUCCESSOR_SECONDS. The arguments are those of `request_checkpoint`.
    """
    return _send(addresses, f"no-successor {key}\n", port=port, timeout_seconds=timeout_seconds)


def announce_launcher(addresses: Sequence[str], *, port: int = READY_PORT, timeout_seconds: float = 1.0) -> None:
    """Tell the workers that their launcher is there. One that does not listen hears it the next time."""
    for first in range(0, len(addresses), MAX_OPEN):
        _send(addresses[first : first + MAX_OPEN], "launcher\n", port=port, timeout_seconds=timeout_seconds)


def _send(addresses: Iterable[str], text: str, *, port: int, timeout_seconds: float) -> int:
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
                connection.connect_ex((waiting.popleft(), port))
                selector.register(connection, selectors.EVENT_WRITE, connection)
            for key, events in selector.select(left):
                if _was_sent(key.data, line, events):
                    # Closing before the worker's own line is read would send a reset, which may overtake the request.
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
