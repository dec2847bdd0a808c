"""The environment variables through which the parts of a running job find each other; the contract has their names."""

from decimal import Decimal

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.clouds.efa import ENVIRONMENT as EFA_ENVIRONMENT
from hvd_elastic.mpijob.contract import Engine
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.mpijob.manifests.supporting import shared_storage
from hvd_elastic.system import quantity

_MANY_WORKERS = 50
_GLOO_SECONDS = 30
_GLOO_SECONDS_LAUNCH = 10
"""Under `launch` all processes enter Gloo at once, so a short timeout is safe: after the loss of a node the survivors
continue within 12 s."""
_GLOO_SECONDS_MANY_WORKERS = 240
"""With more than 50 nodes Gloo's rendezvous takes longer than its default of 30 s (horovod issue 2015)."""


def gloo_timeout_seconds(spec: JobSpec) -> int:
    """Seconds of silence after which a peer counts as dead."""
    if spec.gloo_timeout is not None:
        return spec.gloo_timeout
    if spec.workers.max >= _MANY_WORKERS:
        return _GLOO_SECONDS_MANY_WORKERS
    return _GLOO_SECONDS_LAUNCH if spec.launcher.kind is LauncherKind.LAUNCH else _GLOO_SECONDS


def identity(spec: JobSpec) -> dict[str, str]:
    """Which job this is and how large it may be. Every part reads it."""
    return {
        contract.ENV_JOB: spec.name,
        contract.ENV_NAMESPACE: spec.namespace,
        contract.ENV_MIN_WORKERS: str(spec.workers.min),
        contract.ENV_MAX_WORKERS: str(spec.workers.max),
        contract.ENV_SLOTS: str(spec.workers.slots),
        contract.ENV_LOG_FORMAT: spec.log_format,
    }


def training(spec: JobSpec) -> dict[str, str]:
    """What the training process reads.

    Worker pods have it because the standby runs the script before the launcher's command comes. The launcher pod has it
    because Horovod passes the launcher's environment on. The user's own values come last and win.
    """
    return {
        **identity(spec),
        contract.ENV_STANDBY: spec.standby,
        **({contract.ENV_ENGINE: spec.engine.value} if spec.engine is Engine.TORCH else {}),
        **_network(spec),
        **_threads(spec),
        **_batch(spec),
        **_checkpoint(spec),
        **shared_storage.folders(spec),
        contract.ENV_METRICS: "1",
        **({contract.ENV_METRICS_PORT: str(spec.worker_ports.metrics)} if spec.workers.on_host_network else {}),
        **spec.env,
    }


def _network(spec: JobSpec) -> dict[str, str]:
    horovods = {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(gloo_timeout_seconds(spec))}
    values = {} if spec.engine is Engine.TORCH else horovods
    if spec.workers.efa:
        return values | EFA_ENVIRONMENT
    if spec.workers.on_host_network:  # each worker finds its node's interface
        return values
    return values | ({"NCCL_SOCKET_IFNAME": spec.network.interface} if spec.workers.gpus else {})


def _threads(spec: JobSpec) -> dict[str, str]:
    """Without a limit, a process in a container sees all CPUs of the node and starts a thread for each."""
    share = quantity.parse(spec.workers.cpu) / spec.workers.slots - Decimal(spec.workers.loaders)
    return {"OMP_NUM_THREADS": str(max(1, int(share)))}


def _batch(spec: JobSpec) -> dict[str, str]:
    values: dict[str, str] = {}
    if spec.batch.global_ is not None:
        values[contract.ENV_BATCH_GLOBAL] = str(spec.batch.global_)
    if spec.batch.per_worker is not None:
        values[contract.ENV_BATCH_PER_WORKER] = str(spec.batch.per_worker)
        values[contract.ENV_LEARNING_RATE] = spec.batch.learning_rate or "linear"
    return values


def _checkpoint(spec: JobSpec) -> dict[str, str]:
    if spec.checkpoint is None:
        return {}
    values = {
        contract.ENV_CHECKPOINT: shared_storage.checkpoint_prefix(spec),
        # A trainer of a release that knows no `auto` has its own default then.
        **({contract.ENV_CHECKPOINT_SECONDS: str(spec.checkpoint.every)} if spec.checkpoint.every != "auto" else {}),
        contract.ENV_CHECKPOINT_KEEP: str(spec.checkpoint.keep),
    }
    if spec.checkpoint.steps is not None:
        values[contract.ENV_CHECKPOINT_STEPS] = str(spec.checkpoint.steps)
    if spec.checkpoint.warm_start is not None:
        values[contract.ENV_CHECKPOINT_WARM_START] = spec.checkpoint.warm_start.url
        if not spec.checkpoint.warm_start.strict:
            values[contract.ENV_CHECKPOINT_WARM_START_STRICT] = "0"
    if spec.checkpoint.account is not None:
        values[contract.ENV_AZURE_ACCOUNT] = spec.checkpoint.account
    if spec.checkpoint.endpoint is not None:
        is_s3 = spec.checkpoint.url.startswith("s3:")
        values["AWS_ENDPOINT_URL_S3" if is_s3 else contract.ENV_STORE_ENDPOINT] = spec.checkpoint.endpoint
    return values
