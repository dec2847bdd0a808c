"""Kueue, which admits jobs by quota, and evicts them whole.

Its own manifests and webhooks, these at an address of this machine. From 0.15 on its CRDs have two versions, between
which a webhook converts.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.kube import addons, gomodules, webhooks
from testbed.kube.cluster import Cluster
from testbed.kube.controlplane import ControlPlane, free_ports
from testbed.kube.daemons import Daemon

NAMESPACE: Final = "kueue-system"
_NAME: Final = "kueue"
_ACCOUNT: Final = "kueue-controller-manager"
_PREFIX: Final = "kueue-"
"""What its kustomization puts before names."""
_FRAMEWORKS: Final = ("kubeflow.org/mpijob", "pod", "deployment")
_KINDS: Final = ("mpijob", "pod", "deployment", "clusterqueue", "cohort", "resourceflavor", "workload")
"""What webhooks look at; those of other frameworks would be asked of kinds that this cluster does not know."""
_CERTIFICATES: Final = Path("kueue/metrics/certs")
"""Below /etc: where the manager looks for the certificate of its metrics, also where it serves none."""


def start(machine: Cluster, version: str) -> Daemon:
    """Install `version` (gomodules.VERSIONS); it takes jobs up when this returns."""
    plane, kubectl = machine.plane, machine.kubectl
    port, health = free_ports("127.0.0.1", 2)
    server = f"https://127.0.0.1:{port}"
    built = gomodules.binaries(gomodules.kueue(version))
    components = _components(version)
    configuration = _configuration(components, port=port, health=health)
    authority = webhooks.certify(_own_etc(plane) / _CERTIFICATES, _NAME)
    crds = [_converted(crd, server, authority) for crd in _crds(components)]
    kubectl.apply([*crds, *_access(components), _config_map(configuration)])
    for crd in crds:  # a manager that starts before they are served ends
        kubectl.wait("customresourcedefinition", crd["metadata"]["name"], condition="Established", within_seconds=60)
    file = plane.state / f"{_NAME}.yaml"
    file.write_text(json.dumps(configuration))
    manager = plane.daemon(
        _NAME,
        *addons.with_folder_at("/etc", _own_etc(plane)),  # where the kubelet would have mounted the certificate
        str(built / "kueue"),
        f"--kubeconfig={addons.as_account(plane, kubectl, NAMESPACE, _ACCOUNT)}",
        f"--config={file}",
        "--feature-gates=VisibilityOnDemand=false",  # an API of its own, which the API server would have to reach
    )
    manager.stop()  # one that a killed run of the tests left
    manager.start()
    addons.wait_answering(manager, f"http://127.0.0.1:{health}/readyz")
    kubectl.apply(_webhooks(components, server, authority))
    return manager


def stop(machine: Cluster, version: str) -> None:
    """Remove it with all its objects. No job may be left in its queues; also after a start that did not end."""
    components = _components(version)
    for item in _webhooks(components, "", b""):
        machine.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found")
    for crd in _crds(components):  # Kueue itself takes its finalizers away
        machine.kubectl("delete", "crd", crd["metadata"]["name"], "--ignore-not-found", within_seconds=120)
    for item in (*_access(components), _config_map({})):
        if item["kind"] != "Namespace":  # the next start would have to wait for its end
            name = item["metadata"]["name"]
            machine.kubectl("delete", item["kind"], name, "--ignore-not-found", f"--namespace={NAMESPACE}")
    with contextlib.suppress(FileNotFoundError):
        machine.daemon(_NAME).end()


def _components(version: str) -> Path:
    return gomodules.binaries(gomodules.kueue(version)) / "source" / "config" / "components"


def _configuration(components: Path, *, port: int, health: int) -> dict[str, Any]:
    delivered = yaml.safe_load((components / "manager" / "controller_manager_config.yaml").read_text())
    return {
        "apiVersion": delivered["apiVersion"],
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str("/etc" / _CERTIFICATES)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": [*_FRAMEWORKS]},
    }


def _config_map(configuration: dict[str, Any]) -> dict[str, Any]:
    """Where it lies in any cluster, for who wants to know how Kueue is configured."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": NAMESPACE},
        "data": {"controller_manager_config.yaml": yaml.safe_dump(configuration)},
    }


def _crds(components: Path) -> list[dict[str, Any]]:
    files = sorted((components / "crd" / "bases").glob("*.yaml"))
    return [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in files]


def _converted(crd: dict[str, Any], server: str, root: bytes) -> dict[str, Any]:
    """Let the manager convert between the versions of a CRD, where there are two."""
    if len(crd["spec"]["versions"]) > 1:
        client = webhooks.client(f"{server}/convert", root)
        crd["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
        }
    return crd


def _access(components: Path) -> Iterator[dict[str, Any]]:
    """The manager's account and all of its roles, under the names that its kustomization gives them."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield addons.account(NAMESPACE, _ACCOUNT)
    for file in (components / "rbac" / "role.yaml", *sorted((components / "rbac").glob("manager_*_role.yaml"))):
        role = yaml.safe_load(file.read_text())
        name = f"{_PREFIX}{role['metadata']['name']}"
        role["metadata"] = {"name": name}
        binding = addons.binding(NAMESPACE, _ACCOUNT, name)
        if role["kind"] == "Role":
            role["metadata"]["namespace"] = binding["metadata"]["namespace"] = NAMESPACE
            binding["kind"], binding["roleRef"]["kind"] = "RoleBinding", "Role"
        yield role
        yield binding


def _webhooks(components: Path, server: str, root: bytes) -> Iterator[dict[str, Any]]:
    """Its webhooks for the kinds that are here."""
    names = {f"{way}{kind}.kb.io" for way in "mv" for kind in _KINDS}  # mutating, validating
    return webhooks.answered(components / "webhook" / "manifests.yaml", names, server, root, prefix=_PREFIX)


def _own_etc(plane: ControlPlane) -> Path:
    return plane.state / _NAME
