"""Rights of people: what jobs need beyond Kubernetes' own ClusterRoles `view` and `edit`.

Both know pods, logs, events, ConfigMaps and Jobs, but no MPIJobs and no Roles (Kubernetes 1.34,
`plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`). A ClusterRole with the label `aggregate-to-view` adds its
rules to `view`, `edit` and `admin`, wherever they are bound
(https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles). The MPI Operator's own
`kubeflow-mpijobs-view` has labels of Kubeflow alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

VIEW: Final = "hvd-elastic-view"
EDIT: Final = "hvd-elastic-edit"
_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "patch", "update", "delete"]

RULES: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    VIEW: (
        {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": _READ},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": _READ},
    ),
    EDIT: (
        {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": _WRITE},
        # Of a job's sidecar. The API server lets nobody give away more than he has himself.
        {"apiGroups": [_RBAC], "resources": ["roles", "rolebindings"], "verbs": [*_READ, *_WRITE]},
        {"apiGroups": ["monitoring.coreos.com"], "resources": ["podmonitors"], "verbs": [*_READ, *_WRITE]},
    ),
}


def manifests() -> list[dict[str, Any]]:
    """The two ClusterRoles. Nobody is bound to them: those who have `view` and `edit` have them."""
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/managed-by": "hvd-elastic",
                    f"{_RBAC}/aggregate-to-{name.rpartition('-')[2]}": "true",
                },
            },
            "rules": [dict(rule) for rule in RULES[name]],
        }
        for name in (VIEW, EDIT)
    ]


def role_with(*, group: str, resource: str, verb: str) -> str:
    """Which of the two grants this; empty: neither."""
    for name, rules in RULES.items():
        if any(group in one["apiGroups"] and resource in one["resources"] and verb in one["verbs"] for one in rules):
            return name
    return ""
