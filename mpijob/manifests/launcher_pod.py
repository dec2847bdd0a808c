"""The launcher pod: the container that drives the job, and discovery beside it as a native sidecar."""

from collections.abc import Sequence

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.mpijob.manifests import pod_environment
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, without_empty
from hvd_elastic.mpijob.manifests.pod_parts import (
    container_env,
    container_security,
    env_from_field,
    escape_command,
    pod_security,
    pod_template,
    port,
    scratch_mounts,
    scratch_volumes,
)
from hvd_elastic.mpijob.manifests.supporting import staging

SIDECAR = "discovery"
HOROVODRUN_ELASTIC_TIMEOUT_SECONDS = 365 * 24 * 3600
"""horovodrun cannot be told to wait as long as it takes, and its own default of 600 s ends a job that was preempted."""
_SIDECAR_START_SECONDS = 60
"""So long a sidecar may take to serve its health, on a node where many pods start at once."""
_DRAIN_SECONDS = 20
"""Of the pod's 30 s of grace. The sidecar gives up sooner; this is for one that does not answer."""
_TOKEN_VOLUME = "discovery-token"  # noqa: S105 - a volume's name
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder's name
_TOKEN_SECONDS = 3600
_KEY_VOLUME = "job-key"
_KEY = "ssh-privatekey"
_KEY_FILE = contract.SSH_KEY.rpartition("/")[2]


def template(
    spec: JobSpec,
    *,
    service_account: str | None,
    sidecar_options: Sequence[str] = (),
    ssh_secret: str | None = None,
    owned: Sequence[str] = (),
) -> Manifest:
    """The launcher's pod template. Only the sidecar gets a token: stock Horovod runs what its ports receive.

    `owned`: API paths of what the sidecar becomes the owner of. `ssh_secret`: the Secret with the job's ssh key, by
    which the workers know the sidecar's requests; None where the operator makes none.
    """
    token = {"name": _TOKEN_VOLUME, "mountPath": _TOKEN_FOLDER, "readOnly": True}
    key = {"name": _KEY_VOLUME, "mountPath": contract.SSH_FOLDER, "readOnly": True}
    mounts = [token, key] if ssh_secret else [token]
    pod = without_empty(
        serviceAccountName=service_account,
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        securityContext=pod_security(shared_group=False),
        initContainers=[*staging.gates(spec), sidecar(spec, mounts=mounts, options=sidecar_options, owned=owned)],
        containers=[container(spec)],
        volumes=[
            *scratch_volumes(),
            _token_volume(),
            *_key_volumes(ssh_secret),
            *staging.gate_volumes(spec, has_data=False),
        ],
    )
    return pod_template(spec, Role.LAUNCHER, pod)


def container(spec: JobSpec) -> Manifest:
    """The container that drives the job."""
    ports = [port("metrics-launch", contract.LAUNCHER_METRICS_PORT)] if _is_ours(spec) else []
    return without_empty(
        name="launcher",
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=command(spec),
        workingDir=spec.workdir,
        env=[*container_env(pod_environment.training(spec)), env_from_field(contract.ENV_INCARNATION, "metadata.uid")],
        ports=ports,
        lifecycle={"preStop": {"exec": {"command": _drain_hook()}}},
        resources={
            "requests": {"cpu": spec.launcher.cpu, "memory": spec.launcher.memory},
            "limits": {"memory": spec.launcher.memory},
        },
        securityContext=container_security(),
        volumeMounts=scratch_mounts(),
    )


def command(spec: JobSpec) -> list[str]:
    """The launcher's command line. Ours also serves metrics; else both launchers take the same flags.

    No shell reads any of it.
    """
    program = ["hvd-elastic", spec.launcher.kind.value]
    metrics = ["--metrics-port", str(contract.LAUNCHER_METRICS_PORT)] if _is_ours(spec) else []
    adopt = f"{contract.RUN_DIR}/{contract.ADOPT_FILE}"
    return [*program, *metrics, *flags(spec), adopt, *escape_command(spec.command)]


def _drain_hook() -> list[str]:
    """Runs before the launcher's SIGTERM: the sidecar has the training leave with its last step durable."""
    drain, drained = (f"{contract.RUN_DIR}/{name}" for name in (contract.DRAIN_FILE, contract.DRAINED_FILE))
    wait = f"touch {drain}; until [ -e {drained} ]; do sleep 0.1; done"
    return ["timeout", str(_DRAIN_SECONDS), "/bin/sh", "-c", wait]


def flags(spec: JobSpec, run_dir: str = contract.RUN_DIR) -> list[str]:
    """The flags of horovodrun, with the files that it uses in `run_dir`. `launch` has one more, for `workers.sizes`.

    horovodrun counts processes, a job description counts workers.
    """
    workers, slots = spec.workers, spec.workers.slots
    limit = [] if spec.reset_limit is None else ["--reset-limit", str(spec.reset_limit)]
    allowed = [size * slots for size in workers.allowed_sizes] if _is_ours(spec) else []
    return [
        *("-np", str(workers.start * slots)),
        *("--min-np", str(workers.min * slots)),
        *("--max-np", str(workers.max * slots)),
        *_sizes(allowed),
        *("--slots-per-host", str(slots)),
        *("--network-interface", spec.network.interface),
        *(("--ssh-port", str(spec.worker_ports.ssh)) if spec.workers.on_host_network else ()),
        *("--host-discovery-script", f"{run_dir}/{contract.HOSTS_SCRIPT}"),
        "--gloo",
        *("--blacklist-cooldown-range", *map(str, spec.cooldown)),
        *_elastic_timeout(spec),
        *limit,
    ]


def _sizes(allowed: Sequence[int]) -> list[str]:
    return ["--sizes", ",".join(map(str, allowed))] if allowed else []


def _elastic_timeout(spec: JobSpec) -> list[str]:
    """No limit unless the user sets one: a job may be without workers for as long as others need the GPUs."""
    seconds = spec.elastic_timeout
    if seconds is None and spec.launcher.kind is LauncherKind.HOROVODRUN:
        seconds = HOROVODRUN_ELASTIC_TIMEOUT_SECONDS
    return [] if seconds is None else ["--elastic-timeout", str(seconds)]


def sidecar(
    spec: JobSpec, *, mounts: list[Manifest], options: Sequence[str] = (), owned: Sequence[str] = ()
) -> Manifest:
    """The discovery container. It starts before the launcher, outlives it, and does not keep the pod from ending.

    It has no startup probe: the launcher waits for the first list by itself, and starts meanwhile.
    It has a liveness probe, because a restart costs nothing: the list of hosts stays, and a new sidecar takes it over.
    Launcher and workers have none: a slow answer there would end training that goes on.
    """
    alive = {"path": "/healthz", "port": contract.DISCOVERY_METRICS_PORT}
    ready = {"path": "/readyz", "port": contract.DISCOVERY_METRICS_PORT}
    again = [] if _is_ours(spec) else ["--offer-again", *_sizes(spec.workers.allowed_sizes)]
    nodes = [] if spec.read_nodes else ["--no-nodes"]
    slow = [] if spec.slow_workers == "report" else ["--slow-workers", spec.slow_workers]
    ready_port = ["--ready-port", str(spec.worker_ports.ready)] if spec.workers.on_host_network else []
    return without_empty(
        name=SIDECAR,
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=["hvd-elastic", "discovery-sidecar", *options, *again, *slow, *nodes, *ready_port],
        restartPolicy="Always",
        env=[
            *container_env(pod_environment.identity(spec)),
            *container_env({contract.ENV_RUN_DIR: contract.RUN_DIR}),
            *container_env({contract.ENV_OWNED: " ".join(owned)} if owned else {}),
            env_from_field(contract.ENV_INCARNATION, "metadata.uid"),
        ],
        ports=[port("metrics", contract.DISCOVERY_METRICS_PORT)],
        livenessProbe={
            "httpGet": alive,
            "initialDelaySeconds": _SIDECAR_START_SECONDS,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        readinessProbe={"httpGet": ready, "periodSeconds": 1, "failureThreshold": 3},
        resources={"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        securityContext=container_security(read_only_root=True),
        volumeMounts=[*scratch_mounts(), *mounts],
    )


def _is_ours(spec: JobSpec) -> bool:
    return spec.launcher.kind is LauncherKind.LAUNCH


def _key_volumes(secret: str | None) -> list[Manifest]:
    if secret is None:
        return []
    return [{"name": _KEY_VOLUME, "secret": {"secretName": secret, "items": [{"key": _KEY, "path": _KEY_FILE}]}}]


def _token_volume() -> Manifest:
    """The token that the kubelet would mount into every container, as a volume that one container mounts."""
    return {
        "name": _TOKEN_VOLUME,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]
        },
    }
