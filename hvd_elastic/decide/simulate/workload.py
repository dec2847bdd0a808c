"""The jobs of a simulated day, and what each event costs them."""

from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.policy.job_demand import Speeds


class Way(StrEnum):
    """How training meets a cluster that changes."""

    STATIC = "static"
    """`start` workers or none: every loss stops the job until as many are there again; it begins at its checkpoint."""
    STOCK = "stock"
    """The MPI Operator's own discovery script and plain `horovodrun`: shrinks, and never uses a failed host again."""
    RESTART = "restart"
    """Any size from min to max, but each change restarts the whole job from its checkpoint."""
    OURS = "ours"
    ORACLE = "oracle"
    """All that any way could reach: no stall, no repeated step, each GPU used in the moment in which it is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """One job, as the simulation needs it."""

    name: str
    begins: float = 0.0
    """Seconds of the day at which it is submitted."""
    min: int
    start: int
    max: int
    """Workers."""
    sizes: tuple[int, ...] = ()
    """The only numbers of workers that train; others are surplus. Empty: any."""
    gpus: int = 1
    """Of one worker."""
    speeds: Speeds
    samples_per_step: int
    """The global batch."""
    samples: float = float("inf")
    """To train in all; it has ended then."""
    grace_seconds: float = 30.0
    """Between a worker's notice and its kill."""
    checkpoint_every_seconds: float | None = 300.0
    """Between durable checkpoints; None: there are none."""
    checkpoint_seconds: float = 0.0
    """For which training stands still as it writes one."""
    weight: float = 1.0
    buy: bool = False
    replaces_slow: bool = False
    """Whether a worker that is slow is replaced, in the way `ours`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """What events cost, in seconds. `stalls.py` has the measured ones for each way."""

    pod_start: float
    """From a worker's binding until it is Ready."""
    first_step: float
    """From the first Ready worker of a job, or of its restart, to its first step."""
    grow: float
    """Training stands still as a worker joins."""
    shrink: float
    """... as a worker leaves that was told to."""
    death: float
    """... as a worker is lost without notice, from the loss on."""
    node_lost: float
    """... as its whole node is lost."""
    node_replaced: float
    """From the loss of a node until its workers are asked for anew."""
    gpu_free: float
    """From a worker's notice until its GPU is free, at most its grace."""
    bind: float
    """From the GPU's being free until the pod that waits for it runs, at the median."""
    restart: float
    """From the moment at which a restarted job has its workers Ready to its first step, the restore included."""
    bind_sigma: float = 0.0
    """Standard deviation of the natural logarithm of `bind`: some pods take far longer, none far less."""
