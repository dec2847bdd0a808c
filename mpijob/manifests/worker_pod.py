"""The worker pod: PID 1 keeps a training process warm, and ends within its grace period after a SIGTERM."""

from collections.abc import Sequence

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.clouds import efa
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.network_spec import WorkerPorts
from hvd_elastic.mpijob.manifests import node_placement, pod_environment
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
from hvd_elastic.mpijob.manifests.supporting import bucket_volume, shared_storage, staging

LAUNCHER_SECONDS = 600
"""How long a worker holds its GPUs without a launcher. One that is lost with its node comes back in half that."""

_SHM = "shm"
_STARTUP_SECONDS = 3600


def template(spec: JobSpec, *, options: Sequence[str] = ()) -> Manifest:
    """A worker's pod template. `options` are flags of `hvd-elastic worker`."""
    command = ["hvd-elastic", "worker", *options, *_port_options(spec), "--", *escape_command(spec.command)]
    pod = _pod(spec, container(spec, command))
    return pod_template(spec, Role.WORKER, pod, annotations=bucket_volume.annotations(spec))


def container(spec: JobSpec, command: list[str]) -> Manifest:
    """The worker's container."""
    return without_empty(
        name="worker",
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=command,
        workingDir=spec.workdir,
        env=[*container_env(_environment(spec)), *_identity(spec)],
        envFrom=[{"secretRef": {"name": secret}} for secret in spec.secrets],
        ports=_ports(spec),
        startupProbe=_startup(),
        readinessProbe=_readiness(spec.worker_ports),
        resources=resources(spec),
        securityContext=container_security(),
        volumeMounts=[*scratch_mounts(), {"name": _SHM, "mountPath": "/dev/shm"}, *shared_storage.volume_mounts(spec)],  # noqa: S108
    )


def _pod(spec: JobSpec, training: Manifest) -> Manifest:
    shm = {"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": spec.workers.shm}}
    return without_empty(
        hostNetwork=spec.workers.on_host_network or None,
        # The operator sets it, too (mpi-operator 0.8.2, `newWorker`). Without it the node's name servers are asked.
        dnsPolicy="ClusterFirstWithHostNet" if spec.workers.on_host_network else None,
        serviceAccountName=spec.workers.service_account,
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        terminationGracePeriodSeconds=node_placement.grace_seconds(spec),
        securityContext=pod_security(shared_group=spec.output is not None),
        initContainers=staging.gates(spec),
        containers=[training],
        volumes=[
            *scratch_volumes(),
            shm,
            *shared_storage.pod_volumes(spec),
            *staging.gate_volumes(spec, has_data=True),
        ],
    )


def _environment(spec: JobSpec) -> dict[str, str]:
    return {
        **pod_environment.training(spec),
        **({contract.ENV_EFA: str(spec.workers.efa)} if spec.workers.efa else {}),
        contract.ENV_GRACE_SECONDS: str(node_placement.grace_seconds(spec)),
        contract.ENV_LAUNCHER_SECONDS: str(LAUNCHER_SECONDS),
    }


def _startup() -> Manifest:
    """One process waits until the worker is warm. The readiness probe begins then, and never fails at a normal start.

    It never gives up: how long a script may take to start is the script's own affair.
    """
    warm = f"until [ -e {contract.RUN_DIR}/{contract.GENERATION_FILE} ]; do sleep 0.1; done"
    return {
        "exec": {"command": ["/bin/sh", "-c", warm]},
        "periodSeconds": 1,
        "timeoutSeconds": _STARTUP_SECONDS,
        "failureThreshold": 1000,
    }


def _readiness(ports: WorkerPorts) -> Manifest:
    """A Ready worker is warm: the port is open only while the standby waits or trains."""
    return {"tcpSocket": {"port": ports.ready}, "periodSeconds": 1, "failureThreshold": 3}


def _ports(spec: JobSpec) -> list[Manifest]:
    """Those of a node are said to be so: the scheduler gives no two pods the same of one node.

    The API server would say it, too (Kubernetes 1.34, `pkg/apis/core/v1/defaults.go`, `defaultHostNetworkPorts`).
    """
    ports = spec.worker_ports
    metrics = [port(f"metrics-{rank}", ports.metrics + rank) for rank in range(spec.workers.slots)]
    named = [port("ssh", ports.ssh), port("ready", ports.ready), *metrics]
    return [{**one, "hostPort": one["containerPort"]} for one in named] if spec.workers.on_host_network else named


def _port_options(spec: JobSpec) -> list[str]:
    ports = spec.worker_ports
    return ["--ssh-port", str(ports.ssh), "--ready-port", str(ports.ready)] if spec.workers.on_host_network else []


def _identity(spec: JobSpec) -> list[Manifest]:
    """What tells a worker from others of its node, and what it listens on there."""
    fields = {contract.ENV_POD_UID: "metadata.uid", contract.ENV_HOST_ADDRESS: "status.hostIP"}
    return [env_from_field(name, field) for name, field in fields.items()] if spec.workers.on_host_network else []


def resources(spec: JobSpec) -> Manifest:
    """Requests and limits are equal.

    So the scheduler and an autoscaler know what a worker takes, and the kubelet evicts it last.
    """
    workers = spec.workers
    wanted = without_empty(
        **{
            "cpu": workers.cpu,
            "memory": workers.memory,
            "ephemeral-storage": workers.disk,
            workers.gpu_resource: str(workers.gpus) if workers.gpus else None,
            efa.RESOURCE: str(workers.efa) if workers.efa else None,
            **(efa.HUGE_PAGES if workers.efa else {}),
            **workers.resources,
        }
    )
    return {"requests": wanted, "limits": dict(wanted)}
