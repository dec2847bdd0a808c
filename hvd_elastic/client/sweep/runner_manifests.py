"""A sweep's runner: a Job of one small pod, with an account that may resume the sweep's jobs and nothing else.

The record owns the Job, and the Job owns account, Role, RoleBinding and NetworkPolicy. So all of the runner goes with
the record; and when the last job has ended the runner ends, its time to live is over a minute later, and its rights go
with it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hvd_elastic.client.sweep.sweep_record import SUFFIX, SweepRecord, labels
from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, role_and_binding, without_empty
from hvd_elastic.mpijob.manifests.node_placement import tolerations
from hvd_elastic.mpijob.manifests.pod_parts import container_env, container_security, pod_security
from hvd_elastic.mpijob.manifests.supporting import network_policies

GRACE_SECONDS: Final = 5
"""Of the runner's pod. It ends at once."""
_TTL_SECONDS: Final = 60
_TRIES: Final = 1_000_000
"""A runner that gave up would strand the jobs that wait."""


def runner_job(base: JobSpec, record: SweepRecord, *, owner: str, suspend: bool) -> Manifest:
    """The Job. It is made suspended, because the rights need its UID. `owner`: the record's UID."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{record.name}{SUFFIX}", "uid": owner}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(base, record, config_map),
        "spec": {
            "suspend": suspend,
            "backoffLimit": _TRIES,
            "ttlSecondsAfterFinished": _TTL_SECONDS,
            "template": {"metadata": {"labels": _labels(base, record)}, "spec": _pod(base, record)},
        },
    }


def runner_rights(base: JobSpec, record: SweepRecord, *, owner: str) -> Sequence[Manifest]:
    """What the runner's pod needs before it starts. `owner`: the Job's UID."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{record.name}{SUFFIX}", "uid": owner}
    meta = _metadata(base, record, job)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}
    rights = role_and_binding(meta, _rules(record), account=meta["name"], namespace=base.namespace)
    return [account, *rights, *([_policy(base, record, job)] if base.network.policy else [])]


def _rules(record: SweepRecord) -> list[Manifest]:
    """RBAC cannot select by label: the runner sees all jobs of the namespace, and may change those of the sweep."""
    mpijobs = {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"]}
    names = [job.name for job in record.jobs]
    return [
        {**mpijobs, "verbs": ["list", "watch"]},
        {**mpijobs, "resourceNames": names, "verbs": ["get", "patch"]},
    ]


def _pod(base: JobSpec, record: SweepRecord) -> Manifest:
    return without_empty(
        serviceAccountName=f"{record.name}{SUFFIX}",
        automountServiceAccountToken=True,
        enableServiceLinks=False,
        restartPolicy="OnFailure",
        terminationGracePeriodSeconds=GRACE_SECONDS,
        priorityClassName=base.priority.launcher,
        tolerations=tolerations(base, Role.LAUNCHER),
        imagePullSecrets=[{"name": name} for name in base.image_pull_secrets],
        securityContext=pod_security(shared_group=False),
        containers=[
            {
                "name": "runner",
                "image": base.image,
                "imagePullPolicy": base.image_pull_policy,
                "command": ["hvd-elastic", "sweep-runner", "--sweep", record.name, "--at-once", str(record.at_once)],
                "env": container_env({ENV_LOG_FORMAT: base.log_format}),
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                "securityContext": container_security(read_only_root=True),
            }
        ],
    )


def _policy(base: JobSpec, record: SweepRecord, owner: Mapping[str, str]) -> Manifest:
    """The runner reaches the API server, and nobody reaches the runner."""
    name = f"{record.name}.sweep"  # no job has a policy of this name: it has a dot
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {**_metadata(base, record, owner), "name": name},
        "spec": {
            "podSelector": {"matchLabels": labels(record.name)},
            "policyTypes": ["Ingress", "Egress"],
            "egress": network_policies.to_api_server(base),
        },
    }


def _metadata(base: JobSpec, record: SweepRecord, owner: Mapping[str, str]) -> Manifest:
    return {
        "name": f"{record.name}{SUFFIX}",
        "namespace": base.namespace,
        "labels": _labels(base, record),
        "ownerReferences": [dict(owner)],
    }


def _labels(base: JobSpec, record: SweepRecord) -> dict[str, str]:
    return {**base.labels, **labels(record.name)}
