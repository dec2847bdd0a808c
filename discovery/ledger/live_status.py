"""The state of a job in one line of JSON, as the sidecar last saw it: an annotation of the MPIJob.

It is what `list` shows of a thousand jobs, and what `kubectl describe mpijob` says of one. It is written at once when
the world changes, and every half minute while training goes on, but not while the MPI Operator works on the job
(`discovery/rules/operator_lag.py`). What is not known is left out.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from hvd_elastic.discovery.ledger.training_figures import metrics_from
from hvd_elastic.system.untrusted_values import UNREADABLE, json_object, typed_fields


class Activity(StrEnum):
    """What the job does."""

    STARTING = "starting"
    """Nobody has trained yet."""
    TRAINING = "training"
    WAITING = "waiting"
    """It has trained, and now nobody trains: too few workers are there."""
    STALLED = "stalled"
    """Workers are in training, and no step was done for a minute and twenty times the usual step."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStatus:
    """Counters are over the life of the job."""

    unix: float
    """When it was written."""
    activity: Activity
    since: float
    """Unix seconds since which the activity and the number of workers are the same."""
    workers: int = 0
    """How many train."""
    wanted: int = 0
    queued: int = 0
    """How many a queue has not admitted."""
    step: int = -1
    has_run: bool = False
    """Whether a step was done or, of a script that tells none, a process has come into `elastic.run`."""
    steps_per_second: float | None = None
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What else the script logs: the last number by name."""
    stepped: float | None = None
    """Unix seconds of the last step."""
    durable_step: int = -1
    durable: float | None = None
    """Unix seconds of the last durable checkpoint."""
    save_error: str = ""
    """Why nothing gets durable; empty: nothing says that it does not."""
    rejected: str = ""
    """The newest checkpoint, and why training did not begin with it; empty: it did, or there was none."""
    resizes: int = 0
    pause_seconds: float = 0.0
    repeated_steps: int = 0
    preemptions: int = 0
    launchers: int = 0
    gpu_seconds: float = 0.0
    lent_gpu_seconds: float = 0.0
    training_seconds: float = 0.0
    counts_since: float | None = None
    """Unix seconds since which the counters count; None: since the job began."""
    samples: str = ""
    """What the certificate of samples proved at the end of the last epoch; empty: no epoch has ended."""
    stall: str = ""
    """What the ranks do while no step gets done, in one sentence; empty: training gets on, or nobody knows."""
    stall_since: float | None = None
    """Unix seconds since which a rank does that."""
    slow: Mapping[str, float] = field(default_factory=dict)
    """Unix seconds since which a rank of a worker is slow, by the name of the worker's pod."""
    exit_code: int | None = None
    """Of the last launcher, once the job has ended; None: not known, or it goes on."""

    def to_json(self) -> str:
        """One line."""
        document = {name: value for name, value in asdict(self).items() if value not in (None, -1, {}, "")}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "LiveStatus | None":
        """None if the text is not a status. Keys that are not known are left out."""
        try:
            document = json_object(text)
            return cls(**typed_fields(cls, {**document, "metrics": metrics_from(document.get("metrics"))}))
        except UNREADABLE:
            return None
