"""The autoscaler in a cluster: an account with its own rights and no more, and a Deployment that Pod Security
`restricted` admits. Two replicas: the second one takes over when the first is gone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from hvd_elastic.decide.autoscale.demand_store import DEMAND_NAME
from hvd_elastic.decide.autoscale.leadership import LEASE_NAME
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, MANAGED_BY
from hvd_elastic.mpijob.manifests.manifest_parts import role_and_binding
from hvd_elastic.mpijob.manifests.pod_parts import container_security, pod_security

NAME: Final = "hvd-elastic-autoscaler"
_ALIVE: Final = "/run/alive/turn"
_HUNG_SECONDS: Final = 300
"""Without a turn for so long in which the API server answers, it is begun again. An API server that is upgraded is away
for some minutes, and a kubelet takes one to bring a new authority."""

_CLUSTER_RULES: Final = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]},
)
_JOB_RULES: Final = (
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["list", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)


def manifests(
    *, image: str, namespace: str, of_jobs: Sequence[str] = (), arguments: Sequence[str] = (), replicas: int = 2
) -> list[dict[str, Any]]:
    """In the order in which they are applied. `of_jobs`: their namespaces; none: all. `arguments`: of the verb."""
    granted = partial(role_and_binding, account=NAME, namespace=namespace)
    wide = [*_CLUSTER_RULES, *([] if of_jobs else _JOB_RULES)]
    chosen = [word for name in of_jobs for word in ("--namespace", name)]
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _meta(namespace),
            "automountServiceAccountToken": False,
        },
        *granted(_meta(None), wide),
        *(one for name in of_jobs for one in granted(_meta(name), _JOB_RULES)),
        *granted(_meta(namespace, "-own"), _own_rules()),
        _deployment(image, namespace, [*chosen, *arguments], replicas),
    ]


def _own_rules() -> list[dict[str, Any]]:
    """Of its Lease and its ConfigMap. RBAC cannot name what does not exist yet, so it may create any there."""
    own = (("coordination.k8s.io", "leases", LEASE_NAME), ("", "configmaps", DEMAND_NAME))
    return [
        rule
        for group, resource, name in own
        for rule in (
            {"apiGroups": [group], "resources": [resource], "verbs": ["create"]},
            {"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": ["get", "patch"]},
        )
    ]


def _deployment(image: str, namespace: str, arguments: list[str], replicas: int) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(namespace),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(image, arguments)},
        },
    }


def _pod(image: str, arguments: list[str]) -> dict[str, Any]:
    fresh = f"test $(( $(date +%s) - $(stat -c %Y {_ALIVE}) )) -lt {_HUNG_SECONDS}"
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": pod_security(shared_group=False),
        "containers": [
            {
                "name": "autoscaler",
                "image": image,
                "command": ["hvd-elastic", "autoscale", "--alive-file", _ALIVE, *arguments],
                "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": container_security(read_only_root=True),
                "readinessProbe": {"exec": {"command": ["test", "-e", _ALIVE]}, "periodSeconds": 2},
                "livenessProbe": {
                    "exec": {"command": ["/bin/sh", "-c", fresh]},
                    "initialDelaySeconds": _HUNG_SECONDS,
                    "periodSeconds": 30,
                },
                "volumeMounts": [{"name": "alive", "mountPath": "/run/alive"}],
            }
        ],
        "volumes": [{"name": "alive", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    }


def _meta(namespace: str | None, suffix: str = "") -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"name": f"{NAME}{suffix}", **where, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
