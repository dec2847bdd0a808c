"""The one page on which both sides of a running job agree.

The generators write these names into manifests, the sidecar and the launcher read and write them beside the job, the
workers find them in their pod. Nothing is imported here, so that every room may read it, and no value is computed.

A job's data, from the pods to the training process::

    worker pod ──(watch, reach test)──► discovery ──► SNAPSHOT_FILE ──► HOSTS_SCRIPT ──► horovodrun
                                                            └─────────────────────────► hvd-elastic launch
    launcher ──(ssh, or a local process)──► ADOPT_FILE ──(AF_UNIX)──► entry point ──► standby = training process
    training process ──► HEARTBEAT_FILE ──► entry point ──(READY_PORT)──► discovery, `hvd-elastic status`
"""

from enum import IntEnum, StrEnum
from typing import Final


class HvdElasticError(Exception):
    """Root of every error that a caller can act on; `exit_code` is what the command line ends with."""

    exit_code: int = 1


# --- Labels and annotations ------------------------------------------------------------------------------------------

LABEL_OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
LABEL_JOB_NAME: Final = "training.kubeflow.org/job-name"
LABEL_JOB_ROLE: Final = "training.kubeflow.org/job-role"
LABEL_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
"""Set by the MPI Operator on every pod of a job (mpi-operator v0.8, `pkg/controller/mpi_job_controller.go`)."""

LABEL_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
"""Where the legacy training operator (kubeflow.org/v1) says what LABEL_JOB_ROLE says: values of Role."""

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
"""On everything that `generate` emits: `hvd-elastic`, and the job's name."""

MANAGED_BY: Final = "hvd-elastic"

ANNOTATION_WANTED_WORKERS: Final = "hvd-elastic.dev/wanted-workers"
"""On the MPIJob: the number of workers asked for. The sidecar drains the victims, then lowers the replicas."""

ANNOTATION_LEAVE: Final = "hvd-elastic.dev/leave"
"""On a worker pod: any value but `false` asks it to leave the job; discovery offers it no more."""

ANNOTATION_SPEC: Final = "hvd-elastic.dev/job"
"""On the MPIJob: the job description it was rendered from, as JSON, for `status` and a later `generate`."""


class Role(StrEnum):
    """Values of LABEL_JOB_ROLE."""

    LAUNCHER = "launcher"
    WORKER = "worker"


# --- Environment -----------------------------------------------------------------------------------------------------

ENV_JOB: Final = "HVD_ELASTIC_JOB"
ENV_NAMESPACE: Final = "HVD_ELASTIC_NAMESPACE"
ENV_INCARNATION: Final = "HVD_ELASTIC_INCARNATION"
"""On the launcher: an identity of this launcher (its pod's UID). Horovod hands the launcher's environment on to every
worker it starts, under both launchers; it fences checkpoint writers of an earlier launcher out."""

ENV_RUN_DIR: Final = "HVD_ELASTIC_RUN_DIR"
"""The folder of the files below; RUN_DIR where it is not set. `hvd-elastic run` gives every local host its own."""

ENV_READY_ADDRESS: Final = "HVD_ELASTIC_READY_ADDRESS"
"""Address that READY_PORT is bound to; all interfaces where it is not set. Local hosts use one of 127.0.0.0/8 each."""

ENV_MIN_WORKERS: Final = "HVD_ELASTIC_MIN_WORKERS"
ENV_MAX_WORKERS: Final = "HVD_ELASTIC_MAX_WORKERS"
ENV_SLOTS: Final = "HVD_ELASTIC_SLOTS"
"""Processes per worker."""

ENV_STANDBY: Final = "HVD_ELASTIC_STANDBY"
"""How the standby waits: a value of Standby."""

ENV_GRACE_SECONDS: Final = "HVD_ELASTIC_GRACE_SECONDS"
"""The worker pod's terminationGracePeriodSeconds, so that the entry point knows when the kubelet would kill it."""

_EXIT_RESERVE_SECONDS: Final = 1.0
"""Between a worker's own end, with code 0, and the kubelet's SIGKILL. An end takes milliseconds, more on a loaded node."""

ENV_CHECKPOINT: Final = "HVD_ELASTIC_CHECKPOINT"
"""URL of the durable tier: `s3://bucket/prefix` or `file:///path`. Not set: commits live in memory only."""

ENV_CHECKPOINT_SECONDS: Final = "HVD_ELASTIC_CHECKPOINT_SECONDS"
ENV_CHECKPOINT_STEPS: Final = "HVD_ELASTIC_CHECKPOINT_STEPS"
"""Interval of the durable tier, in seconds and in commits; whichever comes first."""

ENV_OUTPUT: Final = "HVD_ELASTIC_OUTPUT"
ENV_TENSORBOARD: Final = "HVD_ELASTIC_TENSORBOARD"
ENV_DATA: Final = "HVD_ELASTIC_DATA"
"""Folders of this job: results, TensorBoard events, the shared data set (read only)."""

ENV_BATCH_GLOBAL: Final = "HVD_ELASTIC_BATCH_GLOBAL"
"""Samples per step over all workers, held constant over resizes."""

ENV_BATCH_PER_WORKER: Final = "HVD_ELASTIC_BATCH_PER_WORKER"
"""Samples per step and process; the learning rate follows the world size as ENV_LEARNING_RATE says."""

ENV_LEARNING_RATE: Final = "HVD_ELASTIC_LEARNING_RATE"
"""`constant`, `linear` or `sqrt`."""

ENV_LOG_FORMAT: Final = "HVD_ELASTIC_LOG_FORMAT"
"""`text` (default) or `json`."""

ENV_METRICS: Final = "HVD_ELASTIC_METRICS"
"""`1`: every training process serves Prometheus metrics on WORKER_METRICS_PORT + its local rank."""

ENV_EVENTS: Final = "HVD_ELASTIC_EVENTS"
"""A folder. Every training process that finds it set appends one JSON object a line to a file of its own there::

    {"time": UNIX SECONDS, "event": "step" | "reset" | "joined" | "left" | "epoch", "rank": R, "size": N, "step": S}
"""


class Standby(StrEnum):
    """Where the standby process of a worker waits for the launcher."""

    INIT = "init"
    """The script runs up to its first `hvd.init()` and waits there: safe for every script."""
    SOLO = "solo"
    """The first `hvd.init()` is a world of one; the script waits where it enters `elastic.run`. Hides slow set-up after
    `hvd.init()`, but the script sees rank 0 and size 1 until then."""
    OFF = "off"
    """No standby: the launcher's command starts the script."""


# --- Files -----------------------------------------------------------------------------------------------------------

RUN_DIR: Final = "/run/hvd-elastic"
"""An emptyDir: in the launcher pod shared by sidecar and launcher, in a worker pod the entry point's own."""

SNAPSHOT_FILE: Final = "hosts"
"""In RUN_DIR of the launcher. Replaced whole by rename(2). Lines, fields separated by one space::

    host ADDRESS SLOTS ALIAS POD        one line a host that may be used, rank 0's host first
    end GENERATION COUNT UPTIME UNIX STATE

COUNT is the number of host lines; GENERATION grows by one with each change of them; UPTIME (of /proc/uptime, whole
seconds: it does not jump) and UNIX (for people) say when the API server last vouched for the list; STATE is a value of
SnapshotState. A file without its `end` line is torn and must not be used."""

HOSTS_SCRIPT: Final = "discover-hosts"
"""In RUN_DIR of the launcher, written by the sidecar: horovodrun's host discovery script (needs only sh)."""

SNAPSHOT_MAX_AGE_SECONDS: Final = 30
"""A snapshot older than this is no answer: the script exits non-zero and Horovod keeps the hosts it has."""

ADOPT_SOCKET: Final = "adopt.sock"
"""In RUN_DIR of a worker: where the entry point takes launchers' commands (AF_UNIX stream)."""

ADOPT_FILE: Final = "adopt"
"""In RUN_DIR of a worker, written by its entry point: `RUN_DIR/adopt COMMAND...` hands COMMAND, environment, working
directory, stdin, stdout and stderr to the standby and ends as it ends."""

HEARTBEAT_FILE: Final = "heartbeat"
"""In RUN_DIR of a worker, replaced by the training process at most once a second: `STEP RANK SIZE UNIX`."""

CHECKPOINT_REQUEST_FILE: Final = "checkpoint-now"
"""In RUN_DIR of a worker. There while the job is about to fall below min workers, or this pod is about to end: the next
`State.commit()` writes a durable checkpoint before it returns, or in the background where LEAVE_FILE stands beside it
and other pods stay. Its content is the reason."""

LEAVE_FILE: Final = "leave"
"""In RUN_DIR of a worker. There once PID 1 got SIGTERM: the process trains on until it is removed by the next
rendezvous or the grace less a reserve is over."""

STATUS_FILE: Final = "status.json"
"""In RUN_DIR of the launcher: the world as `hvd-elastic launch` sees it, replaced by rename."""


class SnapshotState(StrEnum):
    """Last field of the snapshot."""

    OK = "ok"
    SHORT = "short"
    """Fewer usable slots than the job's min workers need: workers checkpoint first."""


# --- Ports -----------------------------------------------------------------------------------------------------------

SSH_PORT: Final = 2222

READY_PORT: Final = 2223
"""Open on a worker only while its standby waits or its training process runs: it is the pod's readiness and the reach
test. A connection is answered with one line and may send one::

    server: hvd-elastic 1 GENERATION STATE STEP AGE      STATE: a value of WorkerState; STEP -1 and AGE -1: no heartbeat
    client: checkpoint REASON                            optional: put CHECKPOINT_REQUEST_FILE there

GENERATION counts the standbys of this pod: `UID-GENERATION` is the host's alias, so a process that was replaced is a
new host and no blacklist is ever in the way. AGE is the heartbeat's, in whole seconds."""

DISCOVERY_METRICS_PORT: Final = 9400
LAUNCHER_METRICS_PORT: Final = 9401
WORKER_METRICS_PORT: Final = 9402
"""Prometheus. A worker's process of local rank r listens on WORKER_METRICS_PORT + r."""


class WorkerState(StrEnum):
    """What a worker's entry point says on READY_PORT."""

    WAITING = "waiting"
    TRAINING = "training"
    LEAVING = "leaving"


# --- The rendezvous server of `hvd-elastic launch` -------------------------------------------------------------------

JOIN_SCOPE: Final = "join"
"""GET /join/HOST:LOCAL_RANK, before every `hvd.init()`: the join barrier. Answers are values of JoinAnswer; 404 means a
stock launcher, which has no barrier."""

SYNCED_SCOPE: Final = "synced"
"""GET /synced/HOST:LOCAL_RANK, once in a worker's life, after its first sync: it has the state and can hand it on.
The answer says nothing; a launcher that does not know the question answers 404."""


class JoinAnswer(StrEnum):
    """Answers of the join barrier."""

    GO = "go"
    """All members of the new assignment are here: call `hvd.init()`."""
    AGAIN = "again"
    """A member died, or the assignment changed: ask for `rank_and_size` again."""
    WAIT = "wait"
    """Not yet: ask again at once (the server holds the request for up to 25 s)."""


# --- Exit codes ------------------------------------------------------------------------------------------------------


class Exit(IntEnum):
    """Exit codes that carry a meaning from one part to another. A script's own code travels unchanged."""

    OK = 0
    ERROR = 1
    BAD_INPUT = 2
    """Command line or job description: nothing was written, nothing started."""

    MIN_WORKERS_TIMEOUT = 70
    """Launcher: fewer than min workers for longer than `--elastic-timeout`."""
    RESET_LIMIT = 71
    """Launcher: `--reset-limit` was reached."""
    ALL_WORKERS_LOST = 72
    """Launcher: no process is left that holds the state in memory; a restart goes on from the durable checkpoint."""

    REMOVED = 77
    """Worker: it is no longer part of the assignment and has left cleanly. Never a failure."""
    HOST_CHANGE = 78
    """Worker: the rendezvous it belonged to is gone (the launcher died, the world could not form): may be restarted."""
    SCRIPT_MISTAKE = 79
    """Worker: a mistake that would break the job at its first resize was found at the start."""


def drain_seconds(grace_seconds: float) -> float:
    """How long a worker pod waits for its training process to leave, of the grace period that the kubelet gives it.

    Args:
        grace_seconds: terminationGracePeriodSeconds. At most a quarter of it is kept in reserve.
    """
    return grace_seconds - min(_EXIT_RESERVE_SECONDS, grace_seconds / 4)
