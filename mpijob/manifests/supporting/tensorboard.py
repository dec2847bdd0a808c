"""TensorBoard over the folder of a job's events: a Deployment of one pod, and a NetworkPolicy that isolates it.

TensorBoard asks nobody for a password, so it listens on its pod's own loopback alone, and there is no Service.
`kubectl port-forward` reaches it all the same: the kubelet has the container runtime dial `localhost` inside the pod's
network namespace (containerd, `internal/cri/server/sandbox_portforward_linux.go`), where no NetworkPolicy applies. So
who may look is who may create `pods/portforward`. A runtime that runs pods in virtual machines, such as Kata, dials the
pod's address and does not reach it.

The pod lacks LABEL_PART_OF, so the job's NetworkPolicies do not let it reach the job's ports.
"""

from collections.abc import Mapping
from typing import Any, Final

from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, MANAGED_BY, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.mounts import Mount, mounts
from hvd_elastic.mpijob.manifests import node_placement
from hvd_elastic.mpijob.manifests.manifest_parts import (
    LABEL_COMPONENT,
    Manifest,
    metadata,
    pod_selector,
    without_empty,
)
from hvd_elastic.mpijob.manifests.pod_parts import (
    TMP_VOLUME,
    container_security,
    escape_command,
    pod_security,
    port,
)
from hvd_elastic.mpijob.manifests.supporting import bucket_volume, network_policies, shared_storage

PORT: Final = 6006
"""TensorBoard's own default."""
LABEL: Final = "hvd-elastic.dev/tensorboard"
"""On the Deployment, its pod and its NetworkPolicy: the job's name."""
_COMPONENT: Final = "tensorboard"
_HOSTNAME: Final = "kubernetes.io/hostname"
_START_SECONDS: Final = 300


def name(job: str) -> str:
    """Of the Deployment."""
    return f"{job}-tensorboard"


def policy_name(job: str) -> str:
    """Of the NetworkPolicy. It has a dot, because the policy of a job has the job's name."""
    return f"{job}.tensorboard"


def folder(spec: JobSpec) -> str:
    """What TensorBoard shows. Raises KeyError for a job without `output`."""
    return shared_storage.kept_events(spec)


def manifests(
    spec: JobSpec, *, image: str, one_node: bool = False, owner: Mapping[str, Any] | None = None
) -> list[Manifest]:
    """What shows the events of a job that has `output`, in apply order.

    Args:
        spec: the job.
        image: an image whose PATH has `tensorboard` and `python3`.
        one_node: the volume of `output` is mounted on one node at a time, so the pod prefers the workers' node. It only
            prefers it: when no worker runs, any node will do.
        owner: the owner reference of the MPIJob, with which these objects go.
    """
    policies = [_isolated(spec, owner)] if spec.network.policy else []
    return [*policies, _deployment(spec, _pod(spec, image, one_node=one_node), owner)]


def _deployment(spec: JobSpec, pod: Manifest, owner: Mapping[str, Any] | None) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(spec, name(spec.name), owner),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 1,
            "strategy": {"type": "Recreate"},  # two pods could need the volume on two nodes
            "selector": {"matchLabels": {LABEL: spec.name}},
            "template": {
                "metadata": without_empty(
                    labels={
                        **spec.labels,
                        LABEL_MANAGED_BY: MANAGED_BY,
                        LABEL_COMPONENT: _COMPONENT,
                        LABEL: spec.name,
                    },
                    annotations=bucket_volume.annotations(spec),
                ),
                "spec": pod,
            },
        },
    }


def _isolated(spec: JobSpec, owner: Mapping[str, Any] | None) -> Manifest:
    """Nothing comes in or goes out, but what the pod's own node sends (Kubernetes, "Network Policies"), and what reads
    a bucket that no node mounts.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(spec, policy_name(spec.name), owner),
        "spec": without_empty(
            podSelector={"matchLabels": {LABEL: spec.name}},
            policyTypes=["Ingress", "Egress"],
            egress=network_policies.to_bucket(spec),
        ),
    }


def _metadata(spec: JobSpec, of: str, owner: Mapping[str, Any] | None) -> Manifest:
    meta = metadata(spec, of)
    meta["labels"] |= {LABEL_COMPONENT: _COMPONENT, LABEL: spec.name}
    return {**meta, "ownerReferences": [dict(owner)]} if owner else meta


def _pod(spec: JobSpec, image: str, *, one_node: bool) -> Manifest:
    """It has no PriorityClass: whoever needs its place may take it."""
    output = _output(spec)
    server = without_empty(
        name=_COMPONENT,
        image=image,
        imagePullPolicy=spec.image_pull_policy,
        command=_command(spec),
        ports=[port("http", PORT)],
        startupProbe=_startup(),
        resources={"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        securityContext=container_security(read_only_root=True),
        volumeMounts=[
            {"name": output.name, "mountPath": output.path, "readOnly": True},
            {"name": TMP_VOLUME, "mountPath": "/tmp"},  # noqa: S108 - in the container
        ],
    )
    return without_empty(
        affinity=_affinity(spec, one_node=one_node),
        tolerations=node_placement.tolerations(spec, Role.WORKER if one_node else Role.LAUNCHER),
        imagePullSecrets=[{"name": secret} for secret in spec.image_pull_secrets],
        # As whom a driver mounts the bucket.
        serviceAccountName=spec.workers.service_account if output.bucket else None,
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        securityContext=pod_security(shared_group=False),
        containers=[server],
        volumes=[
            shared_storage.pod_volume(spec, output, read_only=True),
            {"name": TMP_VOLUME, "emptyDir": {}},
        ],
    )


def _affinity(spec: JobSpec, *, one_node: bool) -> Manifest:
    """As the launcher: on demand, without a GPU. With `one_node` as the workers, whose node has the volume."""
    if not one_node:
        return without_empty(nodeAffinity=(node_placement.affinity(spec, Role.LAUNCHER) or {}).get("nodeAffinity"))
    workers = {"labelSelector": {"matchLabels": pod_selector(spec, Role.WORKER)}, "topologyKey": _HOSTNAME}
    near = {"weight": 100, "podAffinityTerm": workers}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]}}


def _command(spec: JobSpec) -> list[str]:
    """`reload_multifile`: each rank 0 that a job has had wrote a file of its own, and none of them is done for sure."""
    words = ["tensorboard", "--logdir", folder(spec), "--host", "127.0.0.1", "--port", str(PORT)]
    return escape_command([*words, "--reload_multifile=true", "--window_title", spec.name])


def _startup() -> Manifest:
    """A command, because the kubelet's own probes ask the pod's address, where nothing listens."""
    connect = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"
    return {
        "exec": {"command": ["python3", "-c", connect]},
        "periodSeconds": 3,
        "timeoutSeconds": 5,
        "failureThreshold": _START_SECONDS // 3,
    }


def _output(spec: JobSpec) -> Mount:
    return next(mount for mount in mounts(spec) if not mount.read_only)
