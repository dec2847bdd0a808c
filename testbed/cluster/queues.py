"""Queues of Kueue for the GPUs of the spot node: all of them are serving's, and training borrows what it leaves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.cluster.operator_role import may_resume
from testbed.cluster.site import Site
from testbed.kube import kueue
from testbed.kube.kubectl import Kubectl

TRAINING: Final = "training"
SERVING: Final = "serving"


@contextmanager
def kueue_with_queues(site: Site, *, gpus: int) -> Iterator[None]:
    """Kueue, both ClusterQueues, and an MPI Operator that may resume jobs. No job may be left in them at the end."""
    machine = site.local()
    try:
        kueue.start(machine)
        site.kubectl.apply(_cluster_queues(gpus))
        with may_resume(site):
            yield
    finally:
        kueue.stop(machine)


def open_queues(kubectl: Kubectl) -> None:
    """Make a queue of each name in a namespace."""
    kubectl.apply([_of_kueue("LocalQueue", name, {"clusterQueue": name}) for name in (TRAINING, SERVING)])


def _cluster_queues(gpus: int) -> Iterator[dict[str, Any]]:
    yield _of_kueue("ResourceFlavor", "any", {})
    yield _of_kueue("ClusterQueue", TRAINING, _quota(gpus=0))
    yield _of_kueue("ClusterQueue", SERVING, {**_quota(gpus=gpus), "preemption": {"reclaimWithinCohort": "Any"}})


def _quota(*, gpus: int) -> dict[str, Any]:
    nominal = {"cpu": "100", "memory": "1Ti", GPU_RESOURCE: str(gpus)}
    resources = [{"name": name, "nominalQuota": quota} for name, quota in nominal.items()]
    group = {"coveredResources": [*nominal], "flavors": [{"name": "any", "resources": resources}]}
    return {"cohort": "team", "namespaceSelector": {}, "resourceGroups": [group]}


def _of_kueue(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}
