"""The Kubeflow Trainer 2, which makes a JobSet of each TrainJob, and the JobSet controller, which makes its Jobs.

Of JobSet's webhooks those for pods are left out: they are for placement by topology, which no job here asks for.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from testbed.kube import addons, gomodules
from testbed.kube.cluster import Cluster
from testbed.kube.controller_manager import ControllerManager

_NAMESPACE: Final = "kubeflow-system"
_CERTIFICATES: Final = Path("/tmp/k8s-webhook-server/serving-certs")
"""Where controller-runtime looks for a certificate."""


def start(machine: Cluster) -> None:
    """Install both; they take jobs up when this returns."""
    for manager in _managers():
        manager.start(machine)


def stop(machine: Cluster) -> None:
    """Remove both with all their objects; also after a start that did not come to its end."""
    for manager in reversed(_managers()):
        manager.stop(machine)


def _managers() -> list[ControllerManager]:
    jobset, trainer = (gomodules.binaries(which) for which in (gomodules.JOBSET, gomodules.KUBEFLOW_TRAINER))
    components, base = jobset / "source" / "config" / "components", trainer / "source" / "manifests" / "base"
    kinds = ("trainjob", "trainingruntime", "clustertrainingruntime")
    return [
        ControllerManager(
            name="jobset",
            namespace=_NAMESPACE,
            account="jobset",
            program=jobset / "jobset",
            configuration={
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "internalCertManagement": {"enable": False},
            },
            certificates=_CERTIFICATES,
            crds=[components / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml"],
            roles=_roles("jobset", components / "rbac" / "role.yaml"),
            webhooks=components / "webhook" / "manifests.yaml",
            served=["mjobset.kb.io", "vjobset.kb.io"],
        ),
        ControllerManager(
            name="kubeflow-trainer",
            namespace=_NAMESPACE,
            account="kubeflow-trainer",
            program=trainer / "trainer-controller-manager",
            configuration={
                "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
                "certManagement": {"enable": False},
            },
            certificates=_CERTIFICATES,
            crds=[base / "crds" / f"trainer.kubeflow.org_{kind}s.yaml" for kind in kinds],
            roles=_roles("kubeflow-trainer", base / "rbac" / "role.yaml"),
            webhooks=base / "webhook" / "manifests.yaml",
            served=[f"{way}.{kind}.trainer.kubeflow.org" for way in ("defaulter", "validator") for kind in kinds],
        ),
    ]


def _roles(name: str, role: Path) -> list[dict[str, Any]]:
    named = yaml.safe_load(role.read_text()) | {"metadata": {"name": name}}
    return [named, addons.binding(_NAMESPACE, name, name)]
