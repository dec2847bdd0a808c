"""What both kinds of pods share: security, scratch space, ports."""

from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import node_placement, queues
from hvd_elastic.mpijob.manifests.manifest import Manifest, pod_labels, pruned

USER_ID: Final = 1000
"""The image's user; Pod Security `restricted` admits no root."""
SSH_FOLDER: Final = "/home/mpiuser/.ssh"
"""Where the operator mounts the job's key: the home of that user."""

RUN_VOLUME: Final = "run"
TMP_VOLUME: Final = "tmp"
_RUN_SIZE: Final = "16Mi"


def container_security(*, read_only_root: bool = False) -> Manifest:
    """`securityContext` of a container, as Pod Security `restricted` asks for it."""
    return pruned(
        allowPrivilegeEscalation=False,
        readOnlyRootFilesystem=read_only_root or None,
        capabilities={"drop": ["ALL"]},
    )


def pod_security(*, shared_group: bool) -> Manifest:
    """`securityContext` of a pod. `shared_group` lets the user write to volumes that belong to root."""
    return pruned(
        runAsNonRoot=True,
        runAsUser=USER_ID,
        runAsGroup=USER_ID,
        fsGroup=USER_ID if shared_group else None,
        fsGroupChangePolicy="OnRootMismatch" if shared_group else None,
        seccompProfile={"type": "RuntimeDefault"},
    )


def scratch_volumes() -> list[Manifest]:
    """RUN_DIR in memory (a few small files, replaced often), and /tmp, so that a read-only root file system will do."""
    return [
        {"name": RUN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _RUN_SIZE}},
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]


def scratch_mounts() -> list[Manifest]:
    """`volumeMounts` of those."""
    return [{"name": RUN_VOLUME, "mountPath": contract.RUN_DIR}, {"name": TMP_VOLUME, "mountPath": "/tmp"}]  # noqa: S108 - in the container


def port(name: str, number: int) -> Manifest:
    """A named TCP port."""
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def template(spec: JobSpec, role: Role, pod: Manifest) -> Manifest:
    """A pod template: what depends on the role only, around what the role's own module says."""
    common = pruned(
        schedulerName=queues.scheduler_name(spec),
        priorityClassName=spec.priority.launcher if role is Role.LAUNCHER else spec.priority.workers,
        affinity=node_placement.affinity(spec, role),
        tolerations=node_placement.tolerations(spec, role),
        imagePullSecrets=[{"name": name} for name in spec.image_pull_secrets],
    )
    labels = {**pod_labels(spec, role), **queues.pod_labels(spec)}
    return {"metadata": {"labels": labels}, "spec": {**common, **pod}}
