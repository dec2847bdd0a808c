"""What goes when the job goes: the objects beside it that its sidecar makes its own (owner references).

Whoever applies a manifest cannot write owner references, because they hold the owner's UID. The sidecar does it at its
start. Storage is not among them: results outlive their job. Neither is what has no namespace: it cannot be owned by
something that has one (https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/).

Nor are Role and RoleBinding: the sidecar has no right to them. Whoever may patch a RoleBinding and holds all rights of
its Role may bind any other account to it (`ConfirmNoEscalation` in Kubernetes' `pkg/registry/rbac/rolebinding/
policybased/storage.go`), and a policy that knows the sidecar by its account would not know that one.
"""

from collections.abc import Iterable
from typing import Final

from hvd_elastic.mpijob.manifests.manifest_parts import Manifest

_PLURALS: Final = {
    "ConfigMap": "configmaps",
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "ServiceAccount": "serviceaccounts",
}
RIGHTS: Final = frozenset({"Role", "RoleBinding"})
"""Kinds that no token in the cluster may touch. `submit` makes the MPIJob their owner; what was only applied stays, and
`delete` and `doctor` find it by its labels."""


def paths(manifests: Iterable[Manifest]) -> list[str]:
    """The API server's paths of the objects that the sidecar makes its own."""
    return [_path(manifest) for manifest in manifests if manifest["kind"] in _PLURALS]


def rules(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The rights to set the owner of exactly these objects: one rule for each kind."""
    names: dict[tuple[str, str], list[str]] = {}
    for manifest in manifests:
        if manifest["kind"] in _PLURALS:
            names.setdefault((_group(manifest), _PLURALS[manifest["kind"]]), []).append(manifest["metadata"]["name"])
    return [
        {"apiGroups": [group], "resources": [plural], "resourceNames": named, "verbs": ["get", "patch"]}
        for (group, plural), named in names.items()
    ]


def _group(manifest: Manifest) -> str:
    group, slash, _ = manifest["apiVersion"].partition("/")
    return group if slash else ""


def _path(manifest: Manifest) -> str:
    meta, version = manifest["metadata"], manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{meta['namespace']}/{_PLURALS[manifest['kind']]}/{meta['name']}"
