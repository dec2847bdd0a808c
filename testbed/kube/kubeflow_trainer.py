"""The Kubeflow Trainer 2, which makes a JobSet of each TrainJob, and the JobSet controller, which makes its Jobs.

Their own manifests but for their Deployments and certificates. Of JobSet's webhooks those for pods are left out: they
are for placement by topology, which no job here asks for.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.kube import addons, gomodules, webhooks
from testbed.kube.cluster import Cluster
from testbed.kube.controlplane import free_ports

NAMESPACE: Final = "kubeflow-system"
_CERTIFICATES: Final = Path("k8s-webhook-server/serving-certs")
"""Below /tmp: where controller-runtime looks for the webhooks' certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manager:
    """One of the two."""

    name: str
    """Of the process and its account, and before the names of its roles and webhooks."""
    program: Path
    crds: Sequence[Path]
    role: Path
    webhooks: Path
    served: Sequence[str]
    """Of its webhooks those that are asked."""
    configuration: dict[str, Any]
    """Beside ports."""


def start(machine: Cluster) -> None:
    """Install both; they take jobs up when this returns."""
    for manager in _managers():
        _start(machine, manager)


def stop(machine: Cluster) -> None:
    """Remove both with all their objects; also after a start that did not come to its end."""
    for manager in reversed(_managers()):
        for item in webhooks.answered(manager.webhooks, manager.served, "", b"", prefix=f"{manager.name}-"):
            machine.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found")
        for crd in _loaded(manager.crds):
            machine.kubectl("delete", "crd", crd["metadata"]["name"], "--ignore-not-found", within_seconds=120)
        with contextlib.suppress(FileNotFoundError):
            machine.daemon(manager.name).end()


def _managers() -> list[_Manager]:
    jobset, trainer = (gomodules.binaries(which) for which in (gomodules.JOBSET, gomodules.KUBEFLOW_TRAINER))
    components, base = jobset / "source" / "config" / "components", trainer / "source" / "manifests" / "base"
    kinds = ("trainjob", "trainingruntime", "clustertrainingruntime")
    return [
        _Manager(
            name="jobset",
            program=jobset / "jobset",
            crds=[components / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml"],
            role=components / "rbac" / "role.yaml",
            webhooks=components / "webhook" / "manifests.yaml",
            served=["mjobset.kb.io", "vjobset.kb.io"],
            configuration={
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "internalCertManagement": {"enable": False},
            },
        ),
        _Manager(
            name="kubeflow-trainer",
            program=trainer / "trainer-controller-manager",
            crds=[base / "crds" / f"trainer.kubeflow.org_{kind}s.yaml" for kind in kinds],
            role=base / "rbac" / "role.yaml",
            webhooks=base / "webhook" / "manifests.yaml",
            served=[f"{way}.{kind}.trainer.kubeflow.org" for way in ("defaulter", "validator") for kind in kinds],
            configuration={
                "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
                "certManagement": {"enable": False},
            },
        ),
    ]


def _start(machine: Cluster, manager: _Manager) -> None:
    plane, kubectl = machine.plane, machine.kubectl
    port, health = free_ports("127.0.0.1", 2)
    tmp = plane.state / manager.name
    authority = webhooks.certify(tmp / _CERTIFICATES, manager.name)
    crds = _loaded(manager.crds)
    kubectl.apply([*crds, *_access(manager)])
    for crd in crds:  # a manager that starts before they are served ends
        kubectl.wait("customresourcedefinition", crd["metadata"]["name"], condition="Established", within_seconds=60)
    configuration = {
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port},
        "leaderElection": {"leaderElect": False},
        **manager.configuration,
    }
    file = plane.state / f"{manager.name}.yaml"
    file.write_text(json.dumps(configuration))
    process = plane.daemon(
        manager.name,
        *addons.with_folder_at("/tmp", tmp),
        str(manager.program),
        f"--kubeconfig={addons.as_account(plane, kubectl, NAMESPACE, manager.name)}",
        f"--config={file}",
    )
    process.stop()  # one that a killed run of the tests left
    process.start()
    addons.wait_answering(process, f"http://127.0.0.1:{health}/readyz")
    server = f"https://127.0.0.1:{port}"
    kubectl.apply(webhooks.answered(manager.webhooks, manager.served, server, authority, prefix=f"{manager.name}-"))


def _access(manager: _Manager) -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield addons.account(NAMESPACE, manager.name)
    yield yaml.safe_load(manager.role.read_text()) | {"metadata": {"name": manager.name}}
    yield addons.binding(NAMESPACE, manager.name, manager.name)


def _loaded(files: Sequence[Path]) -> list[dict[str, Any]]:
    return [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in files]
