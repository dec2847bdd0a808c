"""What a worker reports of its training processes when it is asked: `report` of `contract.READY_PORT`, as values."""

import json
import socket
import time
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.rank_pace import RankPace, rank_paces
from hvd_elastic.discovery.ledger.rank_wait import RankWait, rank_waits
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.prober import MAX_LINE_BYTES, parse_ready_line
from hvd_elastic.mpijob.contract import READY_PORT, REPORT_MAX_BYTES

_LINES: Final = 2
"""The worker's own line, and the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What is not known has its default."""

    figures: TrainingFigures | None = None
    """Only rank 0's worker has some."""
    waits: tuple[RankWait, ...] = ()
    """What the worker's ranks do that get on with nothing."""
    paces: tuple[RankPace, ...] = ()
    """How long the worker's ranks take for their own part of a step."""
    last_exit: ProcessExit | None = None
    """How the worker's last training process ended."""

    @classmethod
    def from_json(cls, line: bytes) -> "WorkerReport":
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(document, dict):
            return cls()
        return cls(
            figures=TrainingFigures.from_json(document.get("figures"), document.get("unix")),
            waits=rank_waits(document.get("waits")),
            paces=rank_paces(document.get("paces"), document.get("unix")),
            last_exit=ProcessExit.from_json(document.get("last_exit")),
        )


def read_report(address: str, *, port: int = READY_PORT, timeout_seconds: float = 0.5) -> WorkerReport:
    """Ask a worker. It never raises: a worker that cannot be reached is the reach test's affair.

    Args:
        address: the pod's IP address.
        port: the worker's ready port.
        timeout_seconds: for the connection and the whole answer together.
    """
    try:
        received = _ask(address, port, time.monotonic() + timeout_seconds)
        own, newline, line = received.partition(b"\n")
        parse_ready_line(own + newline)
    except (OSError, ValueError):
        return WorkerReport()
    return WorkerReport.from_json(line) if line.endswith(b"\n") else WorkerReport()


def _ask(address: str, port: int, deadline: float) -> bytes:
    """What is received, until it has two lines, is too long or ends. Raises OSError."""
    with socket.create_connection((address, port), timeout=_left(deadline)) as connection:
        connection.sendall(b"report\n")
        received = b""
        while received.count(b"\n") < _LINES and (room := MAX_LINE_BYTES + REPORT_MAX_BYTES - len(received)) > 0:
            connection.settimeout(_left(deadline))
            part = connection.recv(room)
            if not part:
                break
            received += part
        return received


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
