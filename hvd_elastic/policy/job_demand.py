"""What a job asks for, as the decisions see it: in the simulator and in the autoscaler."""

from dataclasses import dataclass
from typing import NewType

Speeds = NewType("Speeds", tuple[float, ...])
"""Samples per second by the number of workers: `speeds[k]` with k workers. `speeds[0]` is 0; the last is of `max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """One job that shares GPUs with others, at one moment."""

    name: str
    """`NAMESPACE/NAME`."""
    min: int
    max: int
    """Workers."""
    sizes: tuple[int, ...] = ()
    """The only numbers of workers that train; others are surplus. Empty: any."""
    workers: int
    """That train now; 0: it waits."""
    wanted: int
    """That were asked for last."""
    gpus: int = 1
    """Of one worker."""
    speeds: Speeds
    weight: float = 1.0
    """A job of weight 2 counts each relative gain twice."""
    quota: int | None = None
    """GPUs that it may have at most, whatever is idle."""
    buy: bool = False
    """Whether it may ask for workers that no node has room for, so that the cluster autoscaler adds nodes."""
    age_seconds: float
    """Since it first trained."""
    resizes: int = 0
    """So far."""
    since_resize_seconds: float = float("inf")
    stall_grow_seconds: float = 0.35
    stall_shrink_seconds: float = 0.25
    """How long training stands still: measured on the job, or benchmarks/cluster.py's medians."""
