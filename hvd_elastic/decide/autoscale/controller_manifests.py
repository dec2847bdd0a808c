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

_LABELS: Final = {"app.kubernetes.io/name": NAME}
"""Of its pods."""
_API_PORTS: Final = (443, 6443)
"""Of the API server, as for jobs (`network.api_ports`)."""

_CLUSTER_RULES: Final = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]},
)
_JOB_RULES: Final = (
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["list", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)
_OWN_RULES: Final = tuple(
    {"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": ["get", "patch"]}
    for group, resource, name in (("coordination.k8s.io", "leases", LEASE_NAME), ("", "configmaps", DEMAND_NAME))
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
        *granted(_meta(namespace, "-own"), _OWN_RULES),
        *_own_objects(namespace),
        _policy(namespace),
        _deployment(image, namespace, [*chosen, *arguments], replicas),
    ]


def _own_objects(namespace: str) -> list[dict[str, Any]]:
    """Its Lease and its ConfigMap, empty: RBAC cannot narrow `create` to a name. What is in them stays when they are
    applied again.
    """
    labels = _meta(namespace)["labels"]
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": labels}}
        for version, kind, name in (
            ("coordination.k8s.io/v1", "Lease", LEASE_NAME),
            ("v1", "ConfigMap", DEMAND_NAME),
        )
    ]


def _policy(namespace: str) -> dict[str, Any]:
    """It reaches the API server, and nobody reaches it: it listens nowhere."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _meta(namespace),
        "spec": {
            "podSelector": {"matchLabels": _LABELS},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"ports": [{"protocol": "TCP", "port": port} for port in _API_PORTS]}],
        },
    }


def _deployment(image: str, namespace: str, arguments: list[str], replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(namespace),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod(image, arguments)},
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
