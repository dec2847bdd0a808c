"""The Job that copies a data set into the job's shared storage, and the container that waits for it.

The Job runs where a launcher would: on demand, without a GPU. Its pod lacks the label by which affinity keeps the job's
pods in one zone, because the zone of a copy must not decide where GPUs are looked for.

A description may change while its job waits. The pod template of a Job cannot (kubernetes 1.34,
`pkg/apis/batch/validation`, `ValidateJobSpecUpdate`), so the Job's name follows from it: another template is another
Job. The MPI Operator never changes the containers of a launcher's Job either (mpi-operator 0.8.2,
`syncLauncherSchedulingDirectives`), so what the gate waits for is in a ConfigMap, which the kubelet brings up to date
in pods that wait (https://kubernetes.io/docs/concepts/configuration/configmap/, "Mounted ConfigMaps are updated
automatically").
"""

import hashlib
import json
from typing import Final

from hvd_elastic.mpijob.contract import (
    ENV_AZURE_ACCOUNT,
    LABEL_MANAGED_BY,
    LABEL_STAGE,
    MANAGED_BY,
    STAGE_CONTAINER,
    STAGE_FOLDER,
    STAGE_KEY,
    STAGE_SUFFIX,
    Role,
)
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.mounts import Mount, mounts
from hvd_elastic.mpijob.description.stage_spec import StageSpec
from hvd_elastic.mpijob.manifests import node_placement
from hvd_elastic.mpijob.manifests.manifest_parts import (
    LABEL_COMPONENT,
    Manifest,
    metadata,
    outside_mesh,
    with_identity,
    without_empty,
)
from hvd_elastic.mpijob.manifests.pod_parts import (
    TMP_VOLUME,
    container_env,
    container_security,
    escape_command,
    pod_security,
)

GATE: Final = "stage-gate"
_VOLUME: Final = "data"
_WANTED_VOLUME: Final = "stage"
_HASH_LENGTH: Final = 8
_LONGEST_NAME: Final = 63
"""A Job's name is a label's value on its pods."""
_ATTEMPTS: Final = 20
"""Pods of the Job that may fail. Each goes on where the one before was."""


def manifests(spec: JobSpec) -> list[Manifest]:
    """The Job, if the description has `stage`."""
    if spec.stage is None:
        return []
    own = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_COMPONENT: STAGE_CONTAINER, LABEL_STAGE: spec.name}
    template = {
        "metadata": {"labels": {**spec.labels, **outside_mesh(spec), **with_identity(spec), **own}},
        "spec": _pod(spec, spec.stage),
    }
    meta = metadata(spec, _job_name(spec, template))
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**meta, "labels": {**meta["labels"], **own}},
            "spec": {
                "backoffLimit": _ATTEMPTS,
                "podReplacementPolicy": "Failed",  # two copiers would write the same files
                "ttlSecondsAfterFinished": spec.keep,
                "template": template,
            },
        }
    ]


def wanted(spec: JobSpec) -> list[Manifest]:
    """The ConfigMap with what the gate waits for, if the description has `stage`."""
    if spec.stage is None:
        return []
    stage = spec.stage
    data_set = {"source": stage.source, "into": stage.into or _data(spec).path, "rearrange": stage.rearrange}
    name = f"{spec.name}{STAGE_SUFFIX}"
    data = {STAGE_KEY: json.dumps(data_set)}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(spec, name), "data": data}]


def selector(spec: JobSpec) -> dict[str, str]:
    """The labels that select the pods that copy."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_STAGE: spec.name}


def _job_name(spec: JobSpec, template: Manifest) -> str:
    content = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]
    suffix = f"{STAGE_SUFFIX}-{content}"
    return f"{spec.name[: _LONGEST_NAME - len(suffix)].rstrip('-')}{suffix}"


def gates(spec: JobSpec) -> list[Manifest]:
    """The init container of launcher and workers, if the description has `stage`."""
    if spec.stage is None:
        return []
    gate = without_empty(
        name=GATE,
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=["hvd-elastic", "stage-gate", "--wanted", f"{STAGE_FOLDER}/{STAGE_KEY}"],
        resources={"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        securityContext=container_security(read_only_root=True),
        volumeMounts=[
            _mount(spec, read_only=True),
            # A subPath would never be brought up to date.
            {"name": _WANTED_VOLUME, "mountPath": STAGE_FOLDER, "readOnly": True},
        ],
    )
    return [gate]


def gate_volumes(spec: JobSpec, *, has_data: bool) -> list[Manifest]:
    """`volumes` of the gate, in a pod that mounts the data itself or does not."""
    if spec.stage is None:
        return []
    config = {"name": _WANTED_VOLUME, "configMap": {"name": f"{spec.name}{STAGE_SUFFIX}"}}
    return [*([] if has_data else [_claim(spec, read_only=True)]), config]


def _pod(spec: JobSpec, stage: StageSpec) -> Manifest:
    endpoint = ["--endpoint", stage.endpoint] if stage.endpoint else []
    account = {ENV_AZURE_ACCOUNT: stage.account} if stage.account else {}
    options = ["--threads", str(stage.threads), *endpoint]
    copier = without_empty(
        name=STAGE_CONTAINER,
        image=spec.image,
        imagePullPolicy=spec.image_pull_policy,
        command=["hvd-elastic", "stage-copier", *escape_command(options), *_arguments(spec, stage)],
        env=container_env({**account, **spec.env}),
        envFrom=[{"secretRef": {"name": secret}} for secret in spec.secrets],
        resources={
            "requests": {"cpu": stage.cpu, "memory": stage.memory},
            "limits": {"memory": stage.memory},
        },
        securityContext=container_security(),
        volumeMounts=[_mount(spec, read_only=False), {"name": TMP_VOLUME, "mountPath": "/tmp"}],  # noqa: S108 - in the container
    )
    return without_empty(
        restartPolicy="Never",
        priorityClassName=spec.priority.launcher,
        affinity=without_empty(nodeAffinity=(node_placement.affinity(spec, Role.LAUNCHER) or {}).get("nodeAffinity")),
        tolerations=node_placement.tolerations(spec, Role.LAUNCHER),
        imagePullSecrets=[{"name": name} for name in spec.image_pull_secrets],
        serviceAccountName=spec.workers.service_account,
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        securityContext=pod_security(shared_group=True),
        containers=[copier],
        volumes=[_claim(spec, read_only=False), {"name": TMP_VOLUME, "emptyDir": {}}],
    )


def _arguments(spec: JobSpec, stage: StageSpec) -> list[str]:
    words = ["--source", stage.source, "--into", stage.into or _data(spec).path]
    return escape_command([*words, *(["--", *stage.rearrange] if stage.rearrange else [])])


def _mount(spec: JobSpec, *, read_only: bool) -> Manifest:
    return without_empty(name=_VOLUME, mountPath=_data(spec).path, readOnly=read_only or None)


def _claim(spec: JobSpec, *, read_only: bool) -> Manifest:
    claim = without_empty(claimName=_data(spec).claim(spec), readOnly=read_only or None)
    return {"name": _VOLUME, "persistentVolumeClaim": claim}


def _data(spec: JobSpec) -> Mount:
    return next(mount for mount in mounts(spec) if mount.read_only)
