"""Everything that makes a cluster fit for elastic training, in order, and everything that takes it away again."""

import json
from datetime import date
from typing import Final

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.manifests import operator_role
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import DEFAULTS, manifest
from hvd_elastic.setup.clusters import aks, eks, gke
from hvd_elastic.setup.clusters.cluster_plan import ClusterPlan, plan_problems
from hvd_elastic.setup.clusters.step import Step

MPI_OPERATOR_VERSION: Final = "0.8.2"
"""The version that hvd-elastic is tested with (docs/requirements.md)."""
_OPERATOR: Final = (
    f"https://raw.githubusercontent.com/kubeflow/mpi-operator/v{MPI_OPERATOR_VERSION}/deploy/v2beta1/mpi-operator.yaml"
)
_OPERATOR_ARGUMENTS: Final = (
    *("-alsologtostderr", "--lock-namespace=mpi-operator"),
    *("-kube-api-qps=50", "-kube-api-burst=100"),
    *("-controller-queue-rate-limit=1000", "-controller-queue-burst=10000"),
)
"""The manifest's own, and limits for jobs of hundreds of workers: docs/requirements.md says why
(mpi-operator 0.8.2, `deploy/v2beta1/mpi-operator.yaml`, `cmd/mpi-operator/app/options/options.go`)."""
_CLOUDS: Final = {Cloud.EKS: eks, Cloud.GKE: gke, Cloud.AKS: aks}
_VOLUME_COLUMNS: Final = ",".join(
    (
        "NAME:.metadata.name",
        "SIZE:.spec.capacity.storage",
        "NAMESPACE:.spec.claimRef.namespace",
        "CLAIM:.spec.claimRef.name",
        "ON-DELETE:.spec.persistentVolumeReclaimPolicy",
        "DRIVER:.spec.csi.driver",
        "HANDLE:.spec.csi.volumeHandle",
    )
)


def creation(plan: ClusterPlan, *, today: date | None = None) -> list[Step]:
    """All steps from nothing to a cluster that takes jobs. Raises InvalidInputError with all problems of the plan.

    `today`: a version of Kubernetes that has ended by then is one of them.
    """
    _validate(plan, today)
    classes = dump([manifest(one) for one in DEFAULTS])
    role = dump(operator_role.manifests())
    apply = ("kubectl", "apply", "-f", "-")
    operator = ("kubectl", "apply", "--server-side", "-f", _OPERATOR)
    return [
        *_CLOUDS[plan.cloud].creation(plan),
        *([] if plan.cloud is Cloud.AKS else [_CLOUDS[plan.cloud].credentials(plan)]),
        Step(purpose=f"the MPI Operator {MPI_OPERATOR_VERSION}", argv=operator),
        Step(purpose="an operator that keeps up with jobs of hundreds of workers", argv=_operator_limits()),
        Step(purpose="the right that the operator lacks to resume jobs", argv=apply, stdin=role),
        Step(purpose="PriorityClasses: inference above launchers above workers", argv=apply, stdin=classes),
    ]


def _operator_limits() -> tuple[str, ...]:
    container = {"name": "mpi-operator", "args": _OPERATOR_ARGUMENTS}
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
    return ("kubectl", "patch", "deployment", "mpi-operator", "--namespace=mpi-operator", f"--patch={patch}")


def kept_data(plan: ClusterPlan) -> list[Step]:
    """Steps that list the volumes of a cluster. They change nothing but kubectl's configuration."""
    _validate(plan)
    listing = ("kubectl", "get", "persistentvolumes", "-o", f"custom-columns={_VOLUME_COLUMNS}")
    purpose = "volumes that hold data: copy what you need before you go on"
    return [_CLOUDS[plan.cloud].credentials(plan), Step(purpose=purpose, argv=listing)]


def deletion(plan: ClusterPlan) -> list[Step]:
    """All steps that take the cluster away. Raises InvalidInputError with all problems of the plan."""
    _validate(plan)
    return list(_CLOUDS[plan.cloud].deletion(plan))


def _validate(plan: ClusterPlan, today: date | None = None) -> None:
    if problems := list(plan_problems(plan, today)):
        raise InvalidInputError(problems)
