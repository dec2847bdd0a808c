"""The training-operator 1.8, which owns PyTorchJobs and the legacy MPIJob `kubeflow.org/v1`.

It runs in the MPI Operator's place: both own the CRD `mpijobs.kubeflow.org`. Its version is added to that for as long
as it runs, so that the CRD is never deleted. Its webhooks, which check jobs when they are created, are left out: the
API server reaches webhooks by a service address, and no kube-proxy translates any on this machine.
"""

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.kube import addons, gomodules, waiting
from testbed.kube.cluster import Cluster
from testbed.kube.controlplane import free_ports
from testbed.kube.daemons import Daemon
from testbed.kube.kubectl import Kubectl
from testbed.kube.store import program_layout

NAMESPACE: Final = "kubeflow"
_NAME: Final = "training-operator"
_SECRET: Final = "training-operator-webhook-cert"
_CERTIFICATES: Final = Path("k8s-webhook-server/serving-certs")
"""Below /tmp: where the operator looks for its webhooks' certificate, without which it starts no controller."""
_DELIVERY_IMAGE: Final = "hvd-elastic.test/kubectl-delivery:1"
"""Stands in for kubeflow/kubectl-delivery, the init container that puts kubectl into a legacy MPIJob's launcher."""
_DISK: Final = "50Gi"
"""That init container asks for some disk, and kubelets that do not watch their disk (docs/cluster.md) offer none."""
_MPIJOBS: Final = "mpijobs.kubeflow.org"
_LEGACY: Final = "v1"


def start(machine: Cluster) -> Daemon:
    """Put it in the MPI Operator's place; it takes jobs up when this returns."""
    kubectl = machine.kubectl
    machine.daemon("mpi-operator").stop()
    source = gomodules.binaries(gomodules.TRAINING_OPERATOR) / "source" / "manifests" / "base"
    kubectl.apply((source / "crds" / "kubeflow.org_pytorchjobs.yaml").read_text())
    _serve_legacy(kubectl, yaml.safe_load((source / "crds" / "kubeflow.org_mpijobs.yaml").read_text()))
    kubectl.apply(_access(source / "rbac"))
    _offer_disk(machine, _DISK)
    _deliver_kubectl(machine)
    operator, health = _describe(machine)
    operator.stop()  # one that a killed run of the tests left
    operator.start()
    _mount_certificate(machine, operator)
    addons.wait_answering(operator, health)
    return operator


def stop(machine: Cluster) -> None:
    """Give the MPI Operator its place back, and the CRD as it was; also after a start that did not come to its end."""
    kubectl = machine.kubectl
    with contextlib.suppress(FileNotFoundError):
        machine.daemon(_NAME).end()
    _serve_no_legacy(kubectl)
    _offer_disk(machine, None)
    operators = kubectl.within("mpi-operator")
    operators("delete", "leases", "--all")  # the last leader's, which would keep the next one waiting
    machine.daemon("mpi-operator").start()
    addons.wait_mpi_operator(kubectl)


def _describe(machine: Cluster) -> tuple[Daemon, str]:
    """Return the process, and the URL where it says that it is ready."""
    plane = machine.plane
    kubeconfig = addons.as_account(plane, machine.kubectl, NAMESPACE, _NAME)
    program = gomodules.binaries(gomodules.TRAINING_OPERATOR) / "training-operator.v1"
    # On all addresses, as it listens: the API server's port is free on the loopback device.
    webhooks, health = free_ports("0.0.0.0", 2)
    folder = _own_tmp(machine)
    described = plane.daemon(
        _NAME,
        *addons.with_folder_at("/tmp", folder),  # where the kubelet would have mounted the certificate
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--enable-scheme=mpijob",
        "--enable-scheme=pytorchjob",
        f"--mpi-kubectl-delivery-image={_DELIVERY_IMAGE}",
        f"--webhook-server-port={webhooks}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        "--metrics-bind-address=0",
    )
    return replace(described, env={"MY_POD_NAMESPACE": NAMESPACE}), f"http://127.0.0.1:{health}/readyz"


def _own_tmp(machine: Cluster) -> Path:
    folder = machine.plane.state / _NAME
    (folder / _CERTIFICATES).mkdir(parents=True, exist_ok=True)
    return folder


def _mount_certificate(machine: Cluster, operator: Daemon) -> None:
    """Do what the kubelet does for the Deployment: show the secret, which the operator fills, as files."""
    secrets = machine.kubectl.within(NAMESPACE)

    def filled() -> dict[str, str] | None:
        operator.require_alive()
        found = secrets.find("secret", _SECRET)
        return found.get("data") if found else None

    data = waiting.until("the operator fills its secret", filled, within_seconds=60, seen=operator.tail)
    for name, value in data.items():
        (_own_tmp(machine) / _CERTIFICATES / name).write_bytes(base64.b64decode(value))


def _access(folder: Path) -> Iterator[dict[str, Any]]:
    """Its own manifests, in the namespace that its kustomization gives them."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    # Without data: the operator keeps what it has filled in.
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": NAMESPACE}}
    for file in sorted(folder.glob("*.yaml")):
        for item in yaml.safe_load_all(file.read_text()):
            if item["kind"] == "ServiceAccount":
                item["metadata"]["namespace"] = NAMESPACE
            for subject in item.get("subjects", []):
                subject["namespace"] = NAMESPACE
            yield item


def _deliver_kubectl(machine: Cluster) -> None:
    files = {
        "kubectl-delivery": gomodules.binaries(gomodules.KUBECTL_DELIVERY) / "kubectl-delivery",
        "bin/kubectl": machine.kubectl.program,
    }
    layout = program_layout(machine.plane.state / "kubectl-delivery", files, ["/kubectl-delivery"])
    machine.load_image(layout, "1", _DELIVERY_IMAGE)


def _offer_disk(machine: Cluster, size: str | None) -> None:
    """Let every node offer so much to pods that ask; None takes the offer back."""
    status = {"status": {part: {"ephemeral-storage": size} for part in ("capacity", "allocatable")}}
    for name in machine.nodes:
        machine.kubectl.patch("node", name, status, subresource="status")


def _serve_legacy(kubectl: Kubectl, legacy: dict[str, Any]) -> None:
    """Serve and store the operator's version of MPIJobs: stored as another, they lose the fields that are its own."""
    others = [version | {"storage": False} for version in _crd(kubectl)["spec"]["versions"] if _is_ours(version)]
    _serve(kubectl, [*others, *legacy["spec"]["versions"]])
    _wait_discovery(kubectl, legacy=True)


def _serve_no_legacy(kubectl: Kubectl) -> None:
    """Serve the MPI Operator's version alone. No MPIJob may be left: it would be stored as what is not served."""
    versions = _crd(kubectl)["spec"]["versions"]
    _serve(kubectl, [version | {"storage": _is_ours(version)} for version in versions])
    ours = [version for version in versions if _is_ours(version)]
    status = {"status": {"storedVersions": [version["name"] for version in ours]}}
    kubectl.patch("crd", _MPIJOBS, status, subresource="status")
    _serve(kubectl, [version | {"storage": True} for version in ours])
    _wait_discovery(kubectl, legacy=False)


def _is_ours(version: dict[str, Any]) -> bool:
    return bool(version["name"] != _LEGACY)


def _serve(kubectl: Kubectl, versions: list[dict[str, Any]]) -> None:
    crd = _crd(kubectl)
    crd["spec"]["versions"] = versions
    kubectl("replace", "-f", "-", stdin=json.dumps(crd))


def _wait_discovery(kubectl: Kubectl, *, legacy: bool) -> None:
    """Wait until `mpijob` means what is served now, to kubectl as well, which remembers it for six hours."""

    def agrees() -> bool:
        said = " ".join(kubectl("api-resources", "--api-group=kubeflow.org").split())
        return (f"kubeflow.org/{_LEGACY} true MPIJob" in said) is legacy

    waiting.until("kubectl knows the versions of MPIJob", agrees, within_seconds=60)


def _crd(kubectl: Kubectl) -> dict[str, Any]:
    return kubectl.get("crd", _MPIJOBS)
