"""What launcher pods and worker pods share: security, scratch volumes, ports, environment variables, placement."""

from collections.abc import Iterable, Mapping
from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import node_placement, queues
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, pod_labels, without_empty

USER_ID: Final = 1000
"""The image's user. Pod Security `restricted` does not admit root."""

RUN_VOLUME: Final = "run"
TMP_VOLUME: Final = "tmp"
_RUN_SIZE: Final = "16Mi"


def pod_template(spec: JobSpec, role: Role, pod: Manifest, *, annotations: Mapping[str, str] | None = None) -> Manifest:
    """The pod template of a role: the role's own `pod` spec and `annotations`, and what follows from the role alone."""
    common = without_empty(
        schedulerName=queues.scheduler_name(spec),
        priorityClassName=_priority_class(spec, role),
        affinity=node_placement.affinity(spec, role),
        tolerations=node_placement.tolerations(spec, role),
        imagePullSecrets=[{"name": name} for name in spec.image_pull_secrets],
    )
    labels = {**pod_labels(spec, role), **queues.pod_labels(spec, role), **_floor_label(spec, role)}
    return {
        "metadata": without_empty(labels=labels, annotations={**_annotations(spec, role), **(annotations or {})}),
        "spec": {**common, **pod},
    }


def _priority_class(spec: JobSpec, role: Role) -> str:
    """A job has one worker template: the class of the workers below the floor is for the cluster's policy to set."""
    if role is Role.WORKER:
        return spec.priority.workers
    return spec.priority.floor if spec.workers.floor else spec.priority.launcher


def _floor_label(spec: JobSpec, role: Role) -> dict[str, str]:
    """What the policy knows these workers by."""
    return {contract.LABEL_FLOOR: str(spec.workers.floor)} if role is Role.WORKER and spec.workers.floor else {}


def _annotations(spec: JobSpec, role: Role) -> dict[str, str]:
    """What a worker's GPUs are, for parts that know no description, if they are not what these take for granted."""
    named = role is Role.WORKER and spec.workers.gpus and spec.workers.gpu_resource != contract.GPU_RESOURCE
    return {contract.ANNOTATION_GPU_RESOURCE: spec.workers.gpu_resource} if named else {}


def container_security(*, read_only_root: bool = False) -> Manifest:
    """`securityContext` of a container, as Pod Security `restricted` asks for it."""
    return without_empty(
        allowPrivilegeEscalation=False,
        readOnlyRootFilesystem=read_only_root or None,
        capabilities={"drop": ["ALL"]},
    )


def pod_security(*, shared_group: bool) -> Manifest:
    """`securityContext` of a pod. With `shared_group` the user may write to volumes that belong to root."""
    return without_empty(
        runAsNonRoot=True,
        runAsUser=USER_ID,
        runAsGroup=USER_ID,
        fsGroup=USER_ID if shared_group else None,
        fsGroupChangePolicy="OnRootMismatch" if shared_group else None,
        seccompProfile={"type": "RuntimeDefault"},
    )


def scratch_volumes() -> list[Manifest]:
    """Volumes for RUN_DIR and /tmp, so that the root file system can be read only.

    RUN_DIR is in memory: it holds a few small files that are replaced often.
    """
    return [
        {"name": RUN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _RUN_SIZE}},
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]


def scratch_mounts() -> list[Manifest]:
    """`volumeMounts` of the scratch volumes."""
    return [{"name": RUN_VOLUME, "mountPath": contract.RUN_DIR}, {"name": TMP_VOLUME, "mountPath": "/tmp"}]  # noqa: S108 - in the container


def port(name: str, number: int) -> Manifest:
    """A named TCP port."""
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def container_env(values: Mapping[str, str]) -> list[Manifest]:
    """`env` of a container."""
    return [{"name": name, "value": escape_dollars(value)} for name, value in values.items()]


def env_from_field(name: str, field: str) -> Manifest:
    """An environment variable whose value is a field of the pod, such as `metadata.uid`."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def escape_command(words: Iterable[str]) -> list[str]:
    """The words of a command as a container's `command` needs them."""
    return [escape_dollars(word) for word in words]


def escape_dollars(text: str) -> str:
    """`text` in a form that Kubernetes turns back into `text`, for a container's command or environment.

    Kubernetes expands `$(NAME)` there, and reads `$$` as one `$`. A `$` before any other character is left alone.
    """
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text
