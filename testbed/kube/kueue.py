"""Kueue, which admits jobs by quota, and evicts them whole. From 0.15 on its CRDs have two versions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.kube import addons, gomodules
from testbed.kube.controller_manager import ControllerManager

_NAMESPACE: Final = "kueue-system"
_ACCOUNT: Final = "kueue-controller-manager"
_FRAMEWORKS: Final = ("kubeflow.org/mpijob", "pod", "deployment")
_KINDS: Final = ("mpijob", "pod", "deployment", "clusterqueue", "cohort", "resourceflavor", "workload")
"""What webhooks look at; those of other frameworks would be asked of kinds that this cluster does not know."""
_CERTIFICATES: Final = Path("/etc/kueue/metrics/certs")
"""Where it looks for the certificate of its metrics, also where it serves none."""


def manager(version: str) -> ControllerManager:
    """The manager of a version (gomodules.VERSIONS). No job may be left in its queues when it is stopped."""
    built = gomodules.binaries(gomodules.kueue(version))
    components = built / "source" / "config" / "components"
    delivered = yaml.safe_load((components / "manager" / "controller_manager_config.yaml").read_text())
    return ControllerManager(
        name="kueue",
        namespace=_NAMESPACE,
        account=_ACCOUNT,
        program=built / "kueue",
        # Visibility is an API of its own, which the API server would have to reach.
        flags=["--feature-gates=VisibilityOnDemand=false"],
        configuration={
            "apiVersion": delivered["apiVersion"],
            "namespace": _NAMESPACE,
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": [*_FRAMEWORKS]},
            "webhook": {"certDir": str(_CERTIFICATES)},
        },
        certificates=_CERTIFICATES,
        crds=sorted((components / "crd" / "bases").glob("*.yaml")),
        roles=list(_roles(components / "rbac")),
        webhooks=components / "webhook" / "manifests.yaml",
        served={f"{way}{kind}.kb.io" for way in "mv" for kind in _KINDS},  # mutating, validating
    )


def _roles(folder: Path) -> Iterator[dict[str, Any]]:
    """All roles, under the names that its kustomization gives them, and their bindings."""
    for file in (folder / "role.yaml", *sorted(folder.glob("manager_*_role.yaml"))):
        role = yaml.safe_load(file.read_text())
        name = f"kueue-{role['metadata']['name']}"
        role["metadata"] = {"name": name}
        binding = addons.binding(_NAMESPACE, _ACCOUNT, name)
        if role["kind"] == "Role":
            role["metadata"]["namespace"] = binding["metadata"]["namespace"] = _NAMESPACE
            binding["kind"], binding["roleRef"]["kind"] = "RoleBinding", "Role"
        yield role
        yield binding
