"""Asks a worker: requests of `contract.READY_PORT` that have an answer."""

import socket
import time
from typing import Final

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.rank_wait import RankWait, waits_from_json
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.prober import MAX_LINE_BYTES, parse_ready_line
from hvd_elastic.mpijob.contract import FIGURES_MAX_BYTES, READY_PORT, WAITS_MAX_BYTES

_LINES: Final = 2
"""The worker's own line, and the answer."""
_MAX_ANSWER_BYTES: Final = MAX_LINE_BYTES + max(FIGURES_MAX_BYTES, WAITS_MAX_BYTES)
"""No answer is longer."""


def read_figures(address: str, *, port: int = READY_PORT, timeout_seconds: float = 0.5) -> TrainingFigures | None:
    """Return what training says about itself; None if the worker has no figures, or does not say them in time.

    Only rank 0's worker has figures. It never raises: a worker that cannot be reached is the reach test's affair.

    Args:
        address: the pod's IP address.
        port: the worker's ready port.
        timeout_seconds: for the connection and the whole answer together.
    """
    line = _answer("figures", address, port, timeout_seconds)
    return TrainingFigures.from_json(line) if line else None


def read_last_exit(address: str, *, port: int = READY_PORT, timeout_seconds: float = 0.5) -> ProcessExit | None:
    """Return how the worker's last training process ended; None if none has, or it is not said in time.

    Never raises. The arguments are those of `read_figures`.
    """
    line = _answer("last-exit", address, port, timeout_seconds)
    return ProcessExit.from_line(line) if line else None


def read_waits(address: str, *, port: int = READY_PORT, timeout_seconds: float = 0.5) -> tuple[RankWait, ...] | None:
    """Return what the worker's ranks do that get on with nothing: often none does. None: it is not said in time.

    Never raises. The arguments are those of `read_figures`.
    """
    line = _answer("waits", address, port, timeout_seconds)
    return waits_from_json(line) if line else None


def _answer(request: str, address: str, port: int, timeout_seconds: float) -> bytes:
    """The answer's line with its newline; empty if there is none."""
    try:
        received = _ask(f"{request}\n".encode(), address, port, time.monotonic() + timeout_seconds)
        own, newline, line = received.partition(b"\n")
        parse_ready_line(own + newline)
    except (OSError, ValueError):
        return b""
    return line if line.endswith(b"\n") else b""


def _ask(request: bytes, address: str, port: int, deadline: float) -> bytes:
    """What is received, until it has two lines, is too long or ends. Raises OSError."""
    with socket.create_connection((address, port), timeout=_left(deadline)) as connection:
        connection.sendall(request)
        received = b""
        while received.count(b"\n") < _LINES and len(received) < _MAX_ANSWER_BYTES:
            connection.settimeout(_left(deadline))
            part = connection.recv(_MAX_ANSWER_BYTES - len(received))
            if not part:
                break
            received += part
        return received


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
