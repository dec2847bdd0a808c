"""Asks a worker what training says about itself: request `figures` of `contract.READY_PORT`."""

import socket
import time
from typing import Final

from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.prober import MAX_LINE_BYTES, parse_ready_line
from hvd_elastic.mpijob.contract import FIGURES_MAX_BYTES, READY_PORT

_REQUEST: Final = b"figures\n"
_LINES: Final = 2
"""The worker's own line, and the figures."""
_MAX_ANSWER_BYTES: Final = MAX_LINE_BYTES + FIGURES_MAX_BYTES


def read_figures(address: str, *, port: int = READY_PORT, timeout_seconds: float = 0.5) -> TrainingFigures | None:
    """Return the figures of the worker at `address`; None if it has none, or does not say them in time.

    Only rank 0's worker has figures. It never raises: a worker that cannot be reached is the reach test's affair.

    Args:
        address: the pod's IP address.
        port: the worker's ready port.
        timeout_seconds: for the connection and the whole answer together.
    """
    try:
        answer = _ask(address, port, time.monotonic() + timeout_seconds)
        own, newline, figures = answer.partition(b"\n")
        parse_ready_line(own + newline)
    except (OSError, ValueError):
        return None
    return TrainingFigures.from_json(figures) if figures.endswith(b"\n") else None


def _ask(address: str, port: int, deadline: float) -> bytes:
    """The answer, until it has two lines, is too long or ends. Raises OSError."""
    with socket.create_connection((address, port), timeout=_left(deadline)) as connection:
        connection.sendall(_REQUEST)
        answer = b""
        while answer.count(b"\n") < _LINES and len(answer) < _MAX_ANSWER_BYTES:
            connection.settimeout(_left(deadline))
            part = connection.recv(_MAX_ANSWER_BYTES - len(answer))
            if not part:
                break
            answer += part
        return answer


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
