"""The names and formats on which all parts of a running job agree.

The generators write these names into manifests, the sidecar and the launcher use them beside the job, and the workers
find them in their pod. This module imports nothing of ours, so that every room may import it, and computes no values.

The way of a job's data, from the pods to the training process::

    worker pod ──(watch, reach test)──► discovery ──► SNAPSHOT_FILE ──► HOSTS_SCRIPT ──► horovodrun
                                                            ├─────────────────────────► hvd-elastic launch
                                                └──► EXPECTED_FILE ─────────────────────────────┘
    launcher ──(ssh, or a local process)──► ADOPT_FILE ──(AF_UNIX)──► entry point ──► standby = training process
    training process ──► HEARTBEAT_FILE, FIGURES_FILE, WAIT_FILE ──► entry point ──(READY_PORT)──► discovery ──► ledger
                    │    PACE_FILE                                                                     ▲
                    └──(FIGURES_SCOPE)──► launcher ──► LAST_FIGURES_FILE, REGISTERED_FILE ─────────────┘
"""

from enum import IntEnum, StrEnum
from typing import Final


class HvdElasticError(Exception):
    """Root of every error that a caller can act on. The command line ends with `exit_code`."""

    exit_code: int = 1


# --- Labels and annotations ------------------------------------------------------------------------------------------

LABEL_OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
LABEL_JOB_NAME: Final = "training.kubeflow.org/job-name"
LABEL_JOB_ROLE: Final = "training.kubeflow.org/job-role"
LABEL_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
"""Set by the MPI Operator on every pod of a job (mpi-operator v0.8, `pkg/controller/mpi_job_controller.go`)."""

LABEL_FLOOR: Final = "hvd-elastic.dev/floor"
"""On worker pods: how many of the first of them get the class of the floor. The platform kit's MutatingAdmissionPolicy
gives it to those whose LABEL_REPLICA_INDEX is below."""

LABEL_REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
"""The legacy training operator (kubeflow.org/v1) sets it in place of LABEL_JOB_ROLE: a value of Role."""

KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's label (its `pkg/controller/constants`, `QueueLabel`): a job or a pod that has it waits until its queue admits
it."""

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
"""On everything that `generate` emits: MANAGED_BY, and the job's name."""

MANAGED_BY: Final = "hvd-elastic"

ANNOTATION_WANTED_WORKERS: Final = "hvd-elastic.dev/wanted-workers"
"""On the MPIJob: the requested number of workers. The sidecar drains those to be removed, then lowers the replicas."""

ANNOTATION_BEGUN: Final = "hvd-elastic.dev/begun"
"""On the MPIJob: `true` once a worker has trained. The sidecar sets it, so that a later launcher begins with the min
workers and not with those that the job waits for at its start."""

ANNOTATION_LEAVE: Final = "hvd-elastic.dev/leave"
"""On a worker pod: any value but `false` asks it to leave the job. Discovery no longer offers it."""

ANNOTATION_SPEC: Final = "hvd-elastic.dev/job"
"""On the MPIJob: the job description from which it was rendered, as JSON, for `status` and a later `generate`."""

ANNOTATION_GPU_RESOURCE: Final = "hvd-elastic.dev/gpu-resource"
"""On worker pods: the resource that is counted as their GPUs. Without it, GPU_RESOURCE is."""

GPU_RESOURCE: Final = "nvidia.com/gpu"
"""What workers ask for when their description does not name another resource."""

ANNOTATION_STATUS: Final = "hvd-elastic.dev/status"
"""On the MPIJob, by the sidecar: `hvd_elastic.discovery.ledger.live_status.LiveStatus` as one line of JSON."""

ANNOTATION_AUTOSCALER: Final = "hvd-elastic.dev/autoscaler"
"""On the MPIJob, by `hvd-elastic autoscale`: its last change and what it has learned of the job, as one line of JSON
(`hvd_elastic.client.report.scaling_note.ScalingNote`)."""

ANNOTATION_EXCLUDED_NODES: Final = "hvd-elastic.dev/excluded-nodes"
"""On the MPIJob, by `hvd-elastic slow-nodes`: the nodes that workers to come keep off, and until when, as
`NODE=TIME,NODE=TIME` (`hvd_elastic.discovery.kube.node_exclusion`)."""

LABEL_SWEEP: Final = "hvd-elastic.dev/sweep"
"""On everything of a job that is one point of a sweep: the sweep's name."""

ANNOTATION_TURN: Final = "hvd-elastic.dev/sweep-turn"
"""On the suspended MPIJob of a sweep: its place in the line. The sweep's runner resumes the first when there is room,
and removes this. A suspended job without it was suspended by somebody, and is left alone."""

LEDGER_SUFFIX: Final = "-ledger"
LEDGER_KEY: Final = "ledger.jsonl"
"""The ConfigMap JOB-ledger, generated empty, and its key with the job's ledger. The sidecar appends to it, and shortens
it before it is too long. Its lines: `hvd_elastic.discovery.ledger.entries`."""


LABEL_STAGE: Final = "hvd-elastic.dev/stage"
"""On the Jobs JOB-stage-HASH that copy a job's data set, and on their pods: the job's name."""

STAGE_SUFFIX: Final = "-stage"
STAGE_KEY: Final = "stage.json"
STAGE_FOLDER: Final = "/etc/hvd-elastic/stage"
"""The ConfigMap JOB-stage, its key, and the folder where each pod's gate finds it: the data set to wait for, as
`{"source": URL, "into": FOLDER, "rearrange": [WORD, ...]}`. A gate that waits reads it again and again, because
neither a pod nor a launcher's Job can be given other arguments."""

STAGE_CONTAINER: Final = "stage"
"""The container that copies. What it logs is how far it is (`hvd_elastic.staging.progress_line`)."""


class Role(StrEnum):
    """Values of LABEL_JOB_ROLE."""

    LAUNCHER = "launcher"
    WORKER = "worker"


# --- Environment -----------------------------------------------------------------------------------------------------

ENV_JOB: Final = "HVD_ELASTIC_JOB"
ENV_NAMESPACE: Final = "HVD_ELASTIC_NAMESPACE"
ENV_INCARNATION: Final = "HVD_ELASTIC_INCARNATION"
"""On the launcher and its sidecar: their identity (their pod's UID). Both launchers pass their environment on to every
worker that they start. The identity keeps workers of an earlier launcher from writing checkpoints."""

ENV_OWNED: Final = "HVD_ELASTIC_OWNED"
"""On the sidecar: API paths of the objects that shall go when the job goes, separated by spaces."""

ENV_RUN_DIR: Final = "HVD_ELASTIC_RUN_DIR"
"""The folder of the files below; RUN_DIR if it is not set. `hvd-elastic run` gives every local host its own folder."""

ENV_READY_ADDRESS: Final = "HVD_ELASTIC_READY_ADDRESS"
"""The address that READY_PORT is bound to; all interfaces if it is not set. Each local host has one of 127.0.0.0/8."""

ENV_HOST_ADDRESS: Final = "HVD_ELASTIC_HOST_ADDRESS"
"""On a worker in its node's network: the node's address. Horovod and NCCL use the interface that has it, unless the
pod's own environment names another: the launcher knows the name of its own alone."""

ENV_POD_UID: Final = "HVD_ELASTIC_POD_UID"
"""On a worker in its node's network: the pod's UID. It answers with it (READY_PORT), because its address is that of the
pod before it, too."""

ENV_MIN_WORKERS: Final = "HVD_ELASTIC_MIN_WORKERS"
ENV_MAX_WORKERS: Final = "HVD_ELASTIC_MAX_WORKERS"
ENV_SLOTS: Final = "HVD_ELASTIC_SLOTS"
"""Processes per worker."""

ENV_STANDBY: Final = "HVD_ELASTIC_STANDBY"
"""Where the standby waits: a value of Standby."""

ENV_COMPILER: Final = "HVD_ELASTIC_COMPILER"
"""When a training process imports what `torch.compile` needs, `torch._dynamo`: a value of CompilerImport."""

ENV_GRACE_SECONDS: Final = "HVD_ELASTIC_GRACE_SECONDS"
"""The worker pod's terminationGracePeriodSeconds: it tells the entry point when the kubelet would kill it."""

_EXIT_RESERVE_SECONDS: Final = 1.0
"""From a worker's own end, with code 0, to the kubelet's SIGKILL. It takes milliseconds, more on a loaded node."""

ENV_LAUNCHER_SECONDS: Final = "HVD_ELASTIC_LAUNCHER_SECONDS"
"""A worker that hears of no launcher for so long ends with Exit.NO_LAUNCHER, so that its GPUs are free. If it is not
set, it waits for ever."""

ENV_EFA: Final = "HVD_ELASTIC_EFA"
"""Elastic Fabric Adapters of this worker. It does not start in an image without the libraries that use them. Without
the variable it looks for none."""

ENV_CHECKPOINT: Final = "HVD_ELASTIC_CHECKPOINT"
"""URL of the durable tier: of a prefix in a bucket, or a folder. If it is not set, commits are in memory only."""

ENV_STORE_ENDPOINT: Final = "HVD_ELASTIC_STORE_ENDPOINT"
"""URL of the service of `gs://` and `az://`, if it is not the cloud's own. That of `s3://` is in boto3's
AWS_ENDPOINT_URL_S3."""

ENV_AZURE_ACCOUNT: Final = "AZURE_STORAGE_ACCOUNT_NAME"
"""Storage account of `az://`. fsspec and obstore read it, too."""

ENV_CHECKPOINT_SECONDS: Final = "HVD_ELASTIC_CHECKPOINT_SECONDS"
ENV_CHECKPOINT_STEPS: Final = "HVD_ELASTIC_CHECKPOINT_STEPS"
"""Intervals of the durable tier, in seconds and in commits. The one that is over first counts. Seconds that are `auto`,
or not set, follow what checkpoints cost, and how often no worker is left that holds the state."""

ENV_CHECKPOINT_KEEP: Final = "HVD_ELASTIC_CHECKPOINT_KEEP"
"""Number of durable checkpoints that are kept."""

ENV_CHECKPOINT_ALLOW_MISSING: Final = "HVD_ELASTIC_CHECKPOINT_ALLOW_MISSING"
"""Names, with commas between, that either the State or the checkpoint it resumes from may lack."""

ENV_CHECKPOINT_WARM_START: Final = "HVD_ELASTIC_CHECKPOINT_WARM_START"
ENV_CHECKPOINT_WARM_START_STRICT: Final = "HVD_ELASTIC_CHECKPOINT_WARM_START_STRICT"
"""Whose weights a job takes that has no checkpoint yet: URL of a file, a folder or another job's checkpoints. Strict is
the default; `0`: those that do not fit are listed, and the others are loaded."""

ENV_OUTPUT: Final = "HVD_ELASTIC_OUTPUT"
ENV_TENSORBOARD: Final = "HVD_ELASTIC_TENSORBOARD"
ENV_DATA: Final = "HVD_ELASTIC_DATA"
"""Folders of the job: results, TensorBoard events, and the shared data set (read only)."""

ENV_TENSORBOARD_COPY: Final = "HVD_ELASTIC_TENSORBOARD_COPY"
"""Folder to which a worker's PID 1 copies what is in ENV_TENSORBOARD's, where `output` is a bucket: TensorBoard appends
to its files, which a bucket cannot do."""

ENV_BATCH_GLOBAL: Final = "HVD_ELASTIC_BATCH_GLOBAL"
"""Samples per step over all workers, constant over resizes."""

ENV_BATCH_PER_WORKER: Final = "HVD_ELASTIC_BATCH_PER_WORKER"
"""Samples per step and process; the learning rate follows the world size as ENV_LEARNING_RATE says."""

ENV_LEARNING_RATE: Final = "HVD_ELASTIC_LEARNING_RATE"
"""`constant`, `linear` or `sqrt`."""

ENV_REPLICAS: Final = "HVD_ELASTIC_REPLICAS"
"""What happens when workers that should be alike differ: `stop` (default), `warn` or `off`."""

ENV_ENGINE: Final = "HVD_ELASTIC_ENGINE"
"""What the ranks of a world speak to each other with: a value of Engine. Default `horovod`."""

ENV_RESTARTS: Final = "HVD_ELASTIC_RESTARTS"
"""How often a training process that knows `torchrun` alone has begun its script again, in worlds before. None sets it
but the process itself."""

ENV_LOG_FORMAT: Final = "HVD_ELASTIC_LOG_FORMAT"
"""`text` (default) or `json`."""

ENV_METRICS: Final = "HVD_ELASTIC_METRICS"
"""`1` makes every training process serve Prometheus metrics on WORKER_METRICS_PORT + its local rank. Generated jobs set
it; `0` in a job's own `env` turns it off."""

ENV_METRICS_PORT: Final = "HVD_ELASTIC_METRICS_PORT"
"""Stands for WORKER_METRICS_PORT where workers are in their nodes' network."""

ENV_EVENTS: Final = "HVD_ELASTIC_EVENTS"
"""A folder. Every training process appends JSON objects, one per line, to its own file there::

    {"time": UNIX SECONDS, "event": KIND, "rank": R, "size": N, "step": S}

The kinds: `hvd_elastic.trainer.telemetry.events`.
"""


ENV_STALL_SECONDS: Final = "HVD_ELASTIC_STALL_SECONDS"
STALL_SECONDS: Final = 30.0
"""After how many seconds a training process says in which collective operation it waits, or where it computes. `0`:
never. A wait of less is common: an evaluation on one rank, a slow shard. It is Horovod's own time for a lost peer, too
(HOROVOD_GLOO_TIMEOUT_SECONDS)."""


class Standby(StrEnum):
    """Where the standby process of a worker waits for the launcher."""

    INIT = "init"
    """The script runs up to its first `hvd.init()` and waits there. Safe for every script."""
    SOLO = "solo"
    """The first `hvd.init()` forms a world of one, and the script waits where it enters `elastic.run`. This hides slow
    set-up after `hvd.init()`, but the script sees rank 0 and size 1 until then."""
    OFF = "off"
    """No standby: the launcher's command starts the script."""


class Engine(StrEnum):
    """Values of ENV_ENGINE."""

    HOROVOD = "horovod"
    TORCH = "torch"
    """torch.distributed. Nothing imports Horovod then."""


class CompilerImport(StrEnum):
    """When a training process imports `torch._dynamo`, which is half of its start."""

    LATER = "later"
    """When the script, or torch for it, uses the compiler. Making an optimizer, and its steps, do not."""
    AHEAD = "ahead"
    """Before the script begins. For a script that calls `torch.compile` after `hvd.init()`: nobody waits for it."""


# --- Files -----------------------------------------------------------------------------------------------------------

RUN_DIR: Final = "/run/hvd-elastic"
"""An emptyDir: in the launcher pod sidecar and launcher share it, in a worker pod the entry point owns it."""

SNAPSHOT_FILE: Final = "hosts"
"""In RUN_DIR of the launcher. Replaced by rename(2). Lines, with fields separated by one space::

    host ADDRESS SLOTS ALIAS POD        one line per host that may be used, rank 0's host first
    end GENERATION COUNT UPTIME UNIX STATE

COUNT is the number of host lines. GENERATION grows by one with each change of them. UPTIME (whole seconds of
/proc/uptime, which does not jump) and UNIX (for people) say when the API server last confirmed the list. STATE is a
value of SnapshotState. A file without its `end` line is incomplete and must not be used."""

EXPECTED_FILE: Final = "expected-workers"
"""In RUN_DIR of the launcher. Replaced by rename(2). A line `UID ADDRESS` for each worker that is in the snapshot, or
may soon be: `hvd-elastic launch` opens a connection to each ahead of need. It makes nobody a host."""

BEGUN_FILE: Final = "begun"
"""In RUN_DIR of the launcher, written by the sidecar, empty: ANNOTATION_BEGUN is set, or a worker trains."""

DRAIN_FILE: Final = "drain"
DRAINED_FILE: Final = "drained"
"""In RUN_DIR of the launcher, empty. The hook that runs before the launcher's SIGTERM makes the first one and waits for
the second: the sidecar makes it when training has left with its last step durable."""

HOSTS_SCRIPT: Final = "discover-hosts"
"""In RUN_DIR of the launcher, written by the sidecar: horovodrun's host discovery script (needs only sh)."""

SNAPSHOT_MAX_AGE_SECONDS: Final = 30
"""A snapshot older than this is not used: the script exits non-zero and Horovod keeps the hosts that it has."""

ADOPT_SOCKET: Final = "adopt.sock"
"""In RUN_DIR of a worker: the entry point accepts launchers' commands there (AF_UNIX stream)."""

ADOPT_FILE: Final = "adopt"
"""In RUN_DIR of a worker, written by its entry point: `RUN_DIR/adopt COMMAND...` hands COMMAND, environment, working
directory, stdin, stdout and stderr to the standby, and ends with the standby's exit code."""

HEARTBEAT_FILE: Final = "heartbeat"
"""In RUN_DIR of a worker. The training process replaces it at most once a second: `STEP RANK SIZE UNIX`."""

USER_FILE: Final = "passwd"
"""In RUN_DIR of a pod that runs as a user whom the image does not know: that user's entry, as in /etc/passwd. The
image's programs look there first."""

SSH_FOLDER: Final = "/home/mpiuser/.ssh"
"""Where the operator mounts the job's ssh key: in that user's home."""

SSH_KEY: Final = ".ssh/id_rsa"
"""In the home of the launcher's and the workers' user: the job's own ssh key, which the operator mounts there."""

FIGURES_FILE: Final = "figures.json"
"""In RUN_DIR of a worker. Rank 0's training process replaces it at most once a second with one line of JSON, 4 KiB at
most; what is not known is left out::

    {"unix": WHEN, "step": S, "size": N, "epoch": E, "steps_per_second": R, "loss": L, "metrics": {NAME: NUMBER},
     "durable_step": S, "durable": UNIX, "save_error": WORDS, "rejected": WORDS, "began_step": S, "began": UNIX,
     "samples": WORDS, "pauses": [{"unix": END, "seconds": P, "from": N, "to": N, "step": S, "repeated": STEPS}, ...]}

`loss` is the last value that the script logged under that name, `metrics` that of each of its first sixteen other names
(64 characters at most; finite numbers). `began_step` and `began` are the last step that was done and the time when this
process came into its first world, which is no pause. `save_error` is why the last save failed, or the durable tier does
not open, 300 characters at most; it is left out once a save has succeeded. `rejected` is the newest checkpoint, if this
process did not begin with it because it is damaged or another job's, and why. `samples` is what the certificate of
samples proved at the end of the last epoch, 300 characters at most. `pauses` are the last eight resizes that this
process saw, oldest first: `step` is the step that training went on with, `repeated` how many steps are done again."""

ALERT_CHECKPOINT_LATE: Final = "HvdElasticCheckpointLate"
"""The alert that fires once nothing has got durable for several intervals."""

FIGURES_MAX_BYTES: Final = 4096
"""Of FIGURES_FILE, its newline included. What is longer is not passed on."""

LAST_FIGURES_FILE: Final = "last-figures.json"
"""In RUN_DIR of the launcher, which replaces it with what rank 0 tells at the end of training (FIGURES_SCOPE): a
FIGURES_FILE. The sidecar asks workers every few seconds, and misses what comes after its last question."""

REGISTERED_FILE: Final = "registered"
"""In RUN_DIR of the launcher, which makes it, empty: a process whose script will tell no steps has registered, as
`elastic.run` does. Of a script that tells them the first step says so."""

WAIT_FILE: Final = "wait"
"""In RUN_DIR of a worker: WAIT_FILE.LOCAL_RANK. It exists while the process of that local rank has done the same for
some seconds, is replaced every second, and has one line of JSON, 1 KiB at most; what is not known is left out::

    {"rank": R, "size": N, "step": S, "seconds": T, "after": A, "operation": "allreduce grad.w",
     "place": "train.py:12 in f"}

`seconds`: for how long. `after`: after how many it is to be told (ENV_STALL_SECONDS). `operation`: the collective
operation in which the process waits; without it the process computes. `place`: the script's line."""

WAITS_MAX_BYTES: Final = 16 * 1024
"""Of the list of waits in a report."""

PACE_FILE: Final = "pace"
"""In RUN_DIR of a worker: PACE_FILE.LOCAL_RANK. The process of that local rank replaces it every five seconds of
training, or at each longer step, with one line of JSON, PACE_MAX_BYTES at most::

    {"rank": R, "size": N, "blocks": [[UNIX, STEPS, STEP, COMPUTING, LOADING], ...]}

Of the last twelve blocks of the present world, oldest first: their end, how many steps they had, and the seconds of one
step: from commit to commit, those that the process computed before it waited for others, and those in which it waited
for data. LOADING is null where it is not known, and part of COMPUTING. Without the file nothing is measured."""

PACE_MAX_BYTES: Final = 1024
PACES_MAX_BYTES: Final = 16 * 1024
"""Of the list of paces in a report."""

REPORT_MAX_BYTES: Final = FIGURES_MAX_BYTES + WAITS_MAX_BYTES + PACES_MAX_BYTES + 512
"""Of the answer to `report`, its newline included."""

TRAINING_FILE: Final = "in-training"
"""In RUN_DIR of a worker: TRAINING_FILE.PID. It exists while that process is in its training function, and is not
replaced but overwritten with each commit: `RANK SIZE STEP ORDERED`. ORDERED is 1 once the process has received SIGTERM.
STEP is -1 before the first commit."""

CHECKPOINT_REQUEST_FILE: Final = "checkpoint-now"
"""In RUN_DIR of a worker. It exists while the job is about to fall below min workers, or this pod is about to end. The
next `State.commit()` writes a durable checkpoint before it returns; if LEAVE_FILE exists too and other pods stay, in
the background. Its content is the reason."""

GENERATION_FILE: Final = "generation"
"""In RUN_DIR of a worker. It exists once the worker was usable for the first time; its content is the present
generation (READY_PORT)."""

LEAVE_FILE: Final = "leave"
"""In RUN_DIR of a worker. It exists once PID 1 has received SIGTERM, or `leave` on READY_PORT. The process trains on
until the next rendezvous removes it, or until the grace less a reserve is over."""

LAUNCHER_GONE_FILE: Final = "launcher-gone"
"""In RUN_DIR of a worker, beside LEAVE_FILE. It exists once a process's launcher has disconnected: nobody will give
that process a place, so it ends as soon as its state is stored."""

NO_SUCCESSOR_FILE: Final = "no-successor"
"""In RUN_DIR of a worker. Written anew with each `no-successor` on READY_PORT that comes after PID 1 has received
SIGTERM: no other worker can take the state over that this one holds in memory."""

NO_SUCCESSOR_SECONDS: Final = 3.0
"""How long the word in NO_SUCCESSOR_FILE holds after it was written. The sidecar repeats it each second while it is
true, so two of its requests may be lost, and a worker that takes long to its next commit does not act on an old one."""

STATUS_FILE: Final = "status.json"
"""In RUN_DIR of the launcher: the world as `hvd-elastic launch` sees it. Replaced by rename(2).
`hvd-elastic horovodrun` writes it when the job has ended, with `state`, `exit_code` and `reason` alone."""


class SnapshotState(StrEnum):
    """The last field of the snapshot."""

    OK = "ok"
    SHORT = "short"
    """Fewer usable slots than the job's min workers need. Workers write a checkpoint first."""


# --- Ports -----------------------------------------------------------------------------------------------------------

SSH_PORT: Final = 2222

READY_PORT: Final = 2223
"""Open on a worker only while its standby waits or its training process runs. It is the pod's readiness probe and the
reach test. A connection is answered with one line and may send one::

    server: hvd-elastic 1 GENERATION STATE STEP AGE      STATE: a value of WorkerState; STEP -1 and AGE -1: no heartbeat
                                                         with ENV_POD_UID one more field: the UID
    client: challenge                                    optional: answered with a NONCE; a signed one follows
    client: checkpoint SIGNATURE REASON                  signed: write CHECKPOINT_REQUEST_FILE
    client: leave SIGNATURE                              signed: training leaves, and the pod stays
    client: no-successor SIGNATURE                       signed: write NO_SUCCESSOR_FILE, if this pod is about to end
    client: launcher                                     optional: the launcher is there (ENV_LAUNCHER_SECONDS)
    client: report                                       optional: answered with one more line, a JSON object

The object is `{"unix": NOW, "figures": FIGURES_FILE, "waits": [WAIT_FILE, ...], "paces": [PACE_FILE, ...],
"last_exit": END}`: the worker's own time, which may differ from the reader's and makes ages of the times in the files;
the fresh WAIT_FILEs; the PACE_FILEs; and how the last training process ended
(`hvd_elastic.discovery.ledger.process_exit`). What is not known is null. For one
release the requests `figures`, `waits` and `last-exit` of 0.1 are answered with that part alone. An unknown request is
answered with an empty line.

SIGNATURE is made of SSH_KEY, NONCE, verb and reason (`hvd_elastic.system.job_key`), so what is sent to an address that
has become another pod's is believed nowhere else. A worker that has a key ignores what is signed otherwise. For one
release it also believes the word of sidecars of 0.1, which send no `challenge`; no sidecar of this release sends it.
A worker without a key believes every `checkpoint`, but neither `leave` nor `no-successor`.

GENERATION counts the standbys of this pod. `UID-GENERATION` is the host's alias: a process that replaces another is a
new host, to which no blacklist applies. AGE is the heartbeat's age in whole seconds. Numbers are plain decimals:
GENERATION of at most 9 digits, STEP and AGE of at most 18. What answers in another form is no worker."""

DISCOVERY_METRICS_PORT: Final = 9400
LAUNCHER_METRICS_PORT: Final = 9401
WORKER_METRICS_PORT: Final = 9402
"""Prometheus. A worker's process of local rank r listens on WORKER_METRICS_PORT + r."""


class WorkerState(StrEnum):
    """The states that a worker's entry point reports on READY_PORT."""

    WAITING = "waiting"
    TRAINING = "training"
    LEAVING = "leaving"


# --- The rendezvous server of `hvd-elastic launch` -------------------------------------------------------------------

ENV_RENDEZVOUS_ADDRESS: Final = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
"""As in a URL: an IPv6 one in brackets, as Horovod and its patch `ipv6` read it."""
ENV_RENDEZVOUS_PORT: Final = "HOROVOD_GLOO_RENDEZVOUS_PORT"

PLACE_SCOPE: Final = "rank_and_size"
"""GET /rank_and_size/HOST:LOCAL_RANK (`horovod/runner/elastic/rendezvous.py`): the process's place in the next
world. It also marks the process as READY. One that asks twice in one round counts twice, so the question is never
repeated."""

ADDRESSES_SCOPE: Final = "worker_addresses"
"""PUT /worker_addresses/HOST:LOCAL_RANK (the same): where the process listens for host updates."""

HOSTS_MIXED: Final = 3
"""Of such an update: hosts were added and removed (`HostUpdateResult.mixed` of horovod 0.28.1)."""

JOIN_SCOPE: Final = "join"
"""GET /join/HOST:LOCAL_RANK, before every `hvd.init()`: the join barrier. Answers are values of JoinAnswer; 404 means a
stock launcher, which does not have a barrier."""

SYNCED_SCOPE: Final = "synced"
"""GET /synced/HOST:LOCAL_RANK, once in a worker's life, after its first sync: it has the state and can pass it on. The
answer is ignored; a launcher that does not know the question answers 404."""

WRITER_SCOPE: Final = "writer"
"""GET /writer/HOST:LOCAL_RANK, by a process that waits for its next world while its pod is about to end. The answer is
a value of WriterAnswer; 404 means a stock launcher, which does not know who holds the state."""

ENDED_SCOPE: Final = "ended"
"""PUT /ended/any, each second, by a process that has left its training function and waits for the others: `RANK STEP
COUNT`. GET /ended/any, by one that waits in training: a value that changes comes from a process that will not join it.
Stock servers keep it, too (`KVStoreHandler` of horovod 0.28.1)."""

WAITING_SCOPE: Final = "waiting"
"""PUT /waiting/RANK, each second, by a process that has waited in a collective operation for some seconds: what
`hvd_elastic.trainer.elastic.stalls.deadlock_search` reads. GET /waiting/RANK, by rank 0 while it waits itself. Stock
servers keep it, too."""

FIGURES_SCOPE: Final = "figures"
FIGURES_EXPECTED_KEY: Final = "expected"
LAST_FIGURES_KEY: Final = "last"
"""PUT /figures/expected, empty, by each process of a script with this project's State before it registers: it will tell
its steps. PUT /figures/last, by rank 0 when training has ended, before any process ends: FIGURES_FILE. Both launchers
answer when RUN_DIR has what follows from it: REGISTERED_FILE, LAST_FIGURES_FILE."""

ENV_RENDEZVOUS_TOKEN: Final = "HOROVOD_RENDEZVOUS_TOKEN"  # noqa: S105 - a name
"""A secret of one launch, which tells the job's own processes from strangers. Stock launchers set none."""

RENDEZVOUS_TOKEN_HEADER: Final = "X-Horovod-Token"  # noqa: S105 - a name
"""The header of requests in which it is shown: by this project's workers, and by Horovod's C++ with the patch
TOKEN_PATCH."""

TOKEN_PATCH: Final = "rendezvous-token"  # noqa: S105 - a name

SHOWS_TOKEN_HEADER: Final = "X-Horovod-Shows-Token"  # noqa: S105 - a name
"""`1` in GET /join: the Horovod of this worker has the patch TOKEN_PATCH."""


MEETING_SCOPE: Final = "meet"
"""PUT /meet/NUMBER, by Horovod's C++ with the patch MEETING_PATCH, which describes the body: where this process listens
for the others. Held for up to 10 s, until all of this world have asked."""

WATCH_KEY: Final = "watch"
"""GET /global/watch, of a process that forms a world: 410 as soon as a member has died. Any other answer, after up to
10 s or at once: ask again. A launcher of an earlier version and the stock one take it for a key of Gloo's."""

MEETING_PATCH: Final = "gloo-meeting"

MEETS_HEADER: Final = "X-Horovod-Meets"
"""`1` in GET /join: the Horovod of this worker has the patch MEETING_PATCH."""

ENV_MEETING: Final = "HOROVOD_GLOO_MEETING"
"""The NUMBER of the meeting in which the next `hvd.init()` finds the other processes. Without it, it asks the store."""


class WriterAnswer(StrEnum):
    """Who stores the last commit where no further world may be formed: the job's writer may be lost."""

    YES = "yes"
    """This process: of those that are left and hold the state, it had the lowest rank."""
    NO = "no"


class JoinAnswer(StrEnum):
    """Answers of the join barrier."""

    GO = "go"
    """All members of the new assignment have come: call `hvd.init()`. `go NUMBER` if all of them have said
    MEETS_HEADER: they meet."""
    AGAIN = "again"
    """A member died, or the assignment changed: ask for `rank_and_size` again."""
    WAIT = "wait"
    """Not yet: ask again at once (the server holds the request for up to 25 s)."""


# --- Exit codes ------------------------------------------------------------------------------------------------------


class Exit(IntEnum):
    """Exit codes with a meaning for another part. A script's own code is passed on unchanged."""

    OK = 0
    ERROR = 1
    BAD_INPUT = 2
    """A bad command line or job description. Nothing was written and nothing was started."""

    OUTPUT_FAILED = 74
    """A verb's standard output cannot be written: the disk is full, or it is closed. 1 is `lint`'s for findings."""

    MIN_WORKERS_TIMEOUT = 70
    """Launcher: there were fewer than min workers for longer than `--elastic-timeout`."""
    RESET_LIMIT = 71
    """Launcher: `--reset-limit` was reached."""
    ALL_WORKERS_LOST = 72
    """Launcher: no process that holds the state in memory is left. A restart goes on from the durable checkpoint."""

    REMOVED = 77
    """Worker: it is no longer part of the assignment and has left cleanly. This is never a failure."""
    HOST_CHANGE = 78
    """Worker: its rendezvous is gone (the launcher died, or the world could not form). A restart is worth while."""
    NO_LAUNCHER = 76
    """Worker: there was no launcher for ENV_LAUNCHER_SECONDS. The pod fails, and is replaced once there is one."""
    SCRIPT_MISTAKE = 79
    """Worker: the script is wrong, and trying again is pointless. Ends the job: no launcher follows."""
    WORKER_DIFFERS = 75
    """Worker: it alone holds other parameters than all others, as bad memory makes them. Its pod is left out."""


FINAL_EXITS: Final = frozenset({Exit.OK, Exit.RESET_LIMIT, Exit.SCRIPT_MISTAKE})
"""After a launcher that ends with one of these no other one follows: the sidecar sees to it."""

MISTAKE_LINE: Final = f"hvd-elastic: the job ends (exit code {Exit.SCRIPT_MISTAKE:d}): trying again is pointless"
"""The last line on stderr of a process that ends with SCRIPT_MISTAKE; what is wrong stands before it. `horovodrun` does
not tell with what its processes end while others go on."""


def drain_seconds(grace_seconds: float) -> float:
    """Return how many seconds of its grace period a worker pod waits for its training process to leave.

    Args:
        grace_seconds: terminationGracePeriodSeconds. At most a quarter of it is kept in reserve.
    """
    return grace_seconds - min(_EXIT_RESERVE_SECONDS, grace_seconds / 4)
