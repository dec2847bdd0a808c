"""The launcher pod: discovery as a native sidecar, and what drives the job beside it."""

from collections.abc import Sequence

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.mpijob.manifests import pod_environment
from hvd_elastic.mpijob.manifests.manifest import Manifest, from_field, literals, pruned
from hvd_elastic.mpijob.manifests.manifest import environment as env
from hvd_elastic.mpijob.manifests.pod_parts import (
    RUN_VOLUME,
    container_security,
    pod_security,
    port,
    scratch_mounts,
    scratch_volumes,
    template,
)

SIDECAR = "discovery"
_TOKEN_VOLUME = "discovery-token"  # noqa: S105 - a volume's name
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder's name
_TOKEN_SECONDS = 3600


def pod_template(spec: JobSpec, *, service_account: str | None, sidecar_options: Sequence[str] = ()) -> Manifest:
    """Template of the launcher. Only the sidecar gets a token: Horovod unpickles what it is sent."""
    token = {"name": _TOKEN_VOLUME, "mountPath": _TOKEN_FOLDER, "readOnly": True}
    pod = pruned(
        serviceAccountName=service_account,
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        securityContext=pod_security(shared_group=False),
        initContainers=[sidecar(spec, mounts=[token], options=sidecar_options)],
        containers=[container(spec)],
        volumes=[*scratch_volumes(), _token_volume()],
    )
    return template(spec, Role.LAUNCHER, pod)


def container(spec: JobSpec) -> Manifest:
    """The container that drives the job."""
    ports = [port("metrics-launch", contract.LAUNCHER_METRICS_PORT)] if _is_ours(spec) else []
    return pruned(
        name="launcher",
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=command(spec),
        workingDir=spec.workdir,
        env=[*env(pod_environment.training(spec)), from_field(contract.ENV_INCARNATION, "metadata.uid")],
        ports=ports,
        resources={
            "requests": {"cpu": spec.launcher.cpu, "memory": spec.launcher.memory},
            "limits": {"memory": spec.launcher.memory},
        },
        securityContext=container_security(),
        volumeMounts=scratch_mounts(),
    )


def command(spec: JobSpec) -> list[str]:
    """The launcher's argument list. Both launchers take the same flags; no shell reads any of it."""
    program = ["hvd-elastic", "launch"] if _is_ours(spec) else ["horovodrun"]
    adopt = f"{contract.RUN_DIR}/{contract.ADOPT_FILE}"
    return [*program, *flags(spec), adopt, *literals(spec.command)]


def flags(spec: JobSpec, run_dir: str = contract.RUN_DIR) -> list[str]:
    """Flags of horovodrun, whose files lie in `run_dir`. It counts processes, a job description counts workers."""
    workers, slots = spec.workers, spec.workers.slots
    limit = [] if spec.reset_limit is None else ["--reset-limit", str(spec.reset_limit)]
    return [
        *("-np", str(workers.start * slots)),
        *("--min-np", str(workers.min * slots)),
        *("--max-np", str(workers.max * slots)),
        *("--slots-per-host", str(slots)),
        *("--network-interface", spec.network.interface),
        *("--host-discovery-script", f"{run_dir}/{contract.HOSTS_SCRIPT}"),
        "--gloo",
        *("--blacklist-cooldown-range", *map(str, spec.cooldown)),
        *("--elastic-timeout", str(spec.elastic_timeout)),
        *limit,
    ]


def sidecar(spec: JobSpec, *, mounts: list[Manifest], options: Sequence[str] = ()) -> Manifest:
    """Discovery. It is up before the launcher starts, outlives it, and does not keep the pod from ending."""
    ready = {"httpGet": {"path": "/readyz", "port": contract.DISCOVERY_METRICS_PORT}, "periodSeconds": 1}
    return pruned(
        name=SIDECAR,
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=["hvd-elastic", "discovery-sidecar", *options, *([] if spec.read_nodes else ["--no-nodes"])],
        restartPolicy="Always",
        env=[
            *env(pod_environment.identity(spec)),
            *env({contract.ENV_RUN_DIR: contract.RUN_DIR}),
        ],
        ports=[port("metrics", contract.DISCOVERY_METRICS_PORT)],
        startupProbe={**ready, "failureThreshold": 120},
        readinessProbe={**ready, "failureThreshold": 3},
        resources={"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        securityContext=container_security(read_only_root=True),
        volumeMounts=[*scratch_mounts(), *mounts],
    )


def _is_ours(spec: JobSpec) -> bool:
    return spec.launcher.kind is LauncherKind.LAUNCH


def _token_volume() -> Manifest:
    """What the kubelet would mount into every container, as a volume that only one of them mounts."""
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


__all__ = ["RUN_VOLUME", "SIDECAR", "command", "container", "flags", "pod_template", "sidecar"]
