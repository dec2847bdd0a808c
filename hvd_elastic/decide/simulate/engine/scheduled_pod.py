"""Pods as kube-scheduler sees them, and the phases of a worker."""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(slots=True, eq=False, kw_only=True)
class ScheduledPod:
    """A pod that asks for GPUs. It changes as it is bound, nominated and told to leave."""

    gpus: int
    created: float
    node: int | None = None
    """Bound to it."""
    nominated: int | None = None
    """The node on which victims make room for it."""
    bound: float = 0.0
    leaving: bool = False
    """It was told to end, and holds its GPUs still."""


@dataclass(slots=True, eq=False, kw_only=True)
class ServingPod(ScheduledPod):
    """A pod of inference."""

    start: float
    """Seconds from its binding until it runs; 0 for one that was there before the day."""
    seconds: float
    """It runs so long then."""
    running: float = float("inf")
    """Since then."""
    end: int = -1
    """The number of the event that is its end; -1: it is not bound yet."""


class WorkerPhase(Enum):
    """Where a worker is in its life."""

    PENDING = auto()
    STARTING = auto()
    """Bound, not Ready yet."""
    READY = auto()
    """It waits to join."""
    MEMBER = auto()
    """Of the world that trains."""
    UNUSED = auto()
    """It holds its GPUs, and is never asked: its host is blacklisted."""
    LEAVING = auto()
    GONE = auto()


@dataclass(slots=True, eq=False, kw_only=True)
class WorkerPod(ScheduledPod):
    """A worker of a job."""

    job: int
    index: int
    """Of its name: a pod that replaces another one has the same."""
    phase: WorkerPhase = WorkerPhase.PENDING
    grace: float = 0.0
    """Once it leaves: after so many seconds it is killed."""
    keeps_off: frozenset[int] = frozenset()
    """Nodes that it may not be bound to."""
    slow: float = 1.0
    """It takes so many times as long for a step as others."""
    slow_since: float = float("inf")
