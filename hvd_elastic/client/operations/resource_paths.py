"""Where the API server keeps each object of a job."""

from collections.abc import Mapping
from typing import Any, Final

PLURALS: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Job": "jobs",
    "MPIJob": "mpijobs",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PodMonitor": "podmonitors",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StorageClass": "storageclasses",
}
"""Pods, a sweep's runner, a TensorBoard, every kind that `mpijob.manifests.render` writes for an MPIJob, and what
people put beside one."""
CLUSTER_WIDE: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "PersistentVolume", "StorageClass"})
"""Kinds that have no namespace."""
VOLUME_KINDS: Final = frozenset({"PersistentVolume", "PersistentVolumeClaim", "StorageClass"})
"""What holds data, or says where: it outlives the job."""


def collection_path(api_version: str, kind: str, namespace: str | None) -> str:
    """The path of all objects of a kind. `namespace` is None for kinds that have none."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{PLURALS[kind]}" if namespace else f"{root}/{PLURALS[kind]}"


def object_path(manifest: Mapping[str, Any]) -> str:
    """The path of the object that a manifest describes."""
    meta = manifest["metadata"]
    return f"{collection_path(manifest['apiVersion'], manifest['kind'], meta.get('namespace'))}/{meta['name']}"


def mpijob_path(namespace: str, name: str = "") -> str:
    """The path of one MPIJob, or of all in a namespace."""
    path = collection_path("kubeflow.org/v2beta1", "MPIJob", namespace)
    return f"{path}/{name}" if name else path
