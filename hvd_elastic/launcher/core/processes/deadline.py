"""When a process is written off, and why."""

from dataclasses import dataclass
from typing import Final

LATE: Final = "did not reach hvd.init() in time"
"""The reason for which a process that waits or starts is written off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When a process is written off, and why."""

    at: float
    reason: str
    is_failure: bool = True
    """Whether the process itself has failed then. A silent one was stopped from outside, or has lost its host."""
