"""What all manifests share: metadata, labels and selectors.

A manifest is a plain dict, with its keys in the order in which they are printed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, LABEL_PART_OF, MANAGED_BY, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec

Manifest: TypeAlias = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
LABEL_COMPONENT = "app.kubernetes.io/component"
"""On pod templates: a value of `Role`. The operators have a role label too, but each version has another one."""


def without_empty(**fields: Any) -> Manifest:
    """A mapping without fields that are None or empty. To Kubernetes, an empty field is the same as an absent one."""
    return {key: value for key, value in fields.items() if value is not None and value not in ({}, [], ())}


def labels(spec: JobSpec) -> dict[str, str]:
    """Labels of every object of the job. The user's own labels cannot override ours."""
    return {**spec.labels, LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: spec.name}


def pod_labels(spec: JobSpec, role: Role) -> dict[str, str]:
    """Labels of a pod template."""
    identity = with_identity(spec) if role is Role.WORKER else {}
    return {**labels(spec), **outside_mesh(spec), **identity, LABEL_COMPONENT: role}


def with_identity(spec: JobSpec) -> dict[str, str]:
    """The label of a pod without which AKS gives it no token of its account ("Use Microsoft Entra Workload ID")."""
    given = spec.cloud is Cloud.AKS and spec.workers.service_account is not None
    return {"azure.workload.identity/use": "true"} if given else {}


def outside_mesh(spec: JobSpec) -> dict[str, str]:
    """The label of a pod by which Istio leaves it alone, whatever its namespace says
    (https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/#controlling-the-injection-policy).
    """
    return {} if spec.network.mesh else {"sidecar.istio.io/inject": "false"}


def pod_selector(spec: JobSpec, role: Role | None = None) -> dict[str, str]:
    """The labels that select the job's pods, or those of one role. They do not depend on the operator."""
    chosen = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: spec.name}
    return {**chosen, LABEL_COMPONENT: role} if role else chosen


def metadata(spec: JobSpec, name: str, *, annotations: Mapping[str, str] | None = None) -> Manifest:
    """Metadata of an object in the job's namespace."""
    return without_empty(name=name, namespace=spec.namespace, labels=labels(spec), annotations=dict(annotations or {}))


def cluster_metadata(spec: JobSpec, suffix: str) -> Manifest:
    """Metadata of an object without a namespace.

    Dots separate the parts of its name, because neither the name of a namespace nor that of a job may have one.
    """
    return without_empty(name=f"{spec.namespace}.{spec.name}.{suffix}", labels=labels(spec))


def role_and_binding(meta: Manifest, rules: Sequence[Manifest], *, account: str, namespace: str) -> list[Manifest]:
    """Rights of a ServiceAccount: in the namespace that the roles' own metadata has, or else in the whole cluster."""
    kind = "Role" if "namespace" in meta else "ClusterRole"
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": list(rules)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]
