"""RBAC: what discovery may do in the cluster, which is limited to its own namespace and its own job."""

from collections.abc import Sequence
from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, cluster_metadata, metadata, role_and_binding
from hvd_elastic.mpijob.manifests.supporting import ledger, ownership

MOST_NAMED_WORKERS: Final = 1_000
"""Workers up to which the right to delete them names each. A Role lists names one by one: 1,000 of the longest, 63
characters, are 66 KB, and as much again in the annotation of `kubectl apply`, which may hold 256 KiB
(`TotalAnnotationSizeLimitB` in Kubernetes' `apimachinery/pkg/api/validation/objectmeta.go`)."""

SUFFIX: Final = "-discovery"
"""Of the name of a job's ServiceAccount, after the job's own."""


def name(spec: JobSpec) -> str:
    """The name of ServiceAccount, Role and RoleBinding."""
    return f"{spec.name}{SUFFIX}"


def ledger_rule(spec: JobSpec) -> Manifest:
    """The right to keep the job's ledger, and to make it again.

    `create` of one name allows server-side apply where there is no such object, and nothing else: a POST has no name
    by which RBAC could allow it (`discovery/sidecar/record/ledger_store.py`).
    """
    return {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [ledger.name(spec)],
        "verbs": ["get", "patch", "create"],
    }


def reaper_rule(spec: JobSpec) -> Manifest:
    """The right to delete the job's workers: by name, or in a job of very many every pod of the namespace.

    The operators name a worker by its index: mpi-operator 0.8.2 (`pkg/controller/mpi_job_controller.go`, `workerName`),
    training-operator 1.8 (`pkg/controller.v1/mpi/mpijob_controller.go`, `getOrCreateWorker`).
    """
    names = [f"{spec.name}-worker-{index}" for index in range(spec.workers.max)]
    only = {"resourceNames": names} if len(names) <= MOST_NAMED_WORKERS else {}
    return {"apiGroups": [""], "resources": ["pods"], **only, "verbs": ["delete"]}


def manifests(spec: JobSpec, *, beside: Sequence[Manifest] = (), account: str | None = None) -> list[Manifest]:
    """ServiceAccount, Role and RoleBinding; with `read_nodes` a ClusterRole and its binding too.

    Discovery may make the account and the objects `beside` it the job's own. With `account` the Role is bound to that
    ServiceAccount, which exists already, and none is made.
    """
    meta = metadata(spec, name(spec))
    service_account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    own = [] if account else [{**service_account, "automountServiceAccountToken": False}]
    bound = account or name(spec)
    nodes = [*_node_reader(spec, bound)] if spec.read_nodes else []
    role, binding = role_and_binding(meta, _rules(spec), account=bound, namespace=spec.namespace)
    role["rules"] += ownership.rules([*own, *beside])
    return [*own, role, binding, *nodes]


def _rules(spec: JobSpec) -> list[Manifest]:
    """What discovery does, and nothing else.

    RBAC selects objects by name only, and fields not at all. So `patch` of the one MPIJob covers its pod templates too,
    where discovery writes annotations and the number of workers (docs/discovery.md, "Rights"). Pods cannot be listed or
    watched by label alone, so all of the namespace may be seen; a single one is never asked for. The MPIJob is listed
    and watched by the field selector `metadata.name`, to which RBAC applies names.

    Events are listed for the scheduler's word on who preempted a worker, and created, but never changed.
    """
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        reaper_rule(spec),
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "create"]},
        ledger_rule(spec),
        {
            "apiGroups": ["kubeflow.org"],
            "resources": ["mpijobs"],
            "resourceNames": [spec.name],
            "verbs": ["get", "list", "watch", "patch"],
        },
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "resourceNames": [f"{spec.name}-launcher"],
            "verbs": ["get", "patch"],
        },
    ]


def _node_reader(spec: JobSpec, account: str) -> list[Manifest]:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    meta = cluster_metadata(spec, "node-reader")
    return role_and_binding(meta, rules, account=account, namespace=spec.namespace)
