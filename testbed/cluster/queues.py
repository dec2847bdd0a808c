"""Queues of Kueue for the GPUs of the spot node: all of them are serving's, and training borrows what it leaves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.cluster.site import Site
from testbed.kube import gomodules, kueue
from testbed.kube.kubectl import Kubectl

TRAINING: Final = "training"
SERVING: Final = "serving"


@contextmanager
def kueue_with_queues(site: Site, *, gpus: int, version: str = gomodules.VERSIONS["kueue"][0]) -> Iterator[None]:
    """Kueue and both ClusterQueues. No job may be left in them at the end."""
    machine = site.local()
    try:
        kueue.start(machine, version)
        site.kubectl.apply(_cluster_queues(gpus, version))
        yield
    finally:
        kueue.stop(machine, version)


def open_queues(kubectl: Kubectl, version: str = gomodules.VERSIONS["kueue"][0]) -> None:
    """Make a queue of each name in a namespace."""
    kubectl.apply([_of_kueue(version, "LocalQueue", name, {"clusterQueue": name}) for name in (TRAINING, SERVING)])


def _cluster_queues(gpus: int, version: str) -> Iterator[dict[str, Any]]:
    cohort = "cohort" if _api(version) == "v1beta1" else "cohortName"
    training, serving = ({cohort: "team", **_quota(gpus=quota)} for quota in (0, gpus))
    yield _of_kueue(version, "ResourceFlavor", "any", {})
    yield _of_kueue(version, "ClusterQueue", TRAINING, training)
    yield _of_kueue(version, "ClusterQueue", SERVING, {**serving, "preemption": {"reclaimWithinCohort": "Any"}})


def _quota(*, gpus: int) -> dict[str, Any]:
    nominal = {"cpu": "100", "memory": "1Ti", GPU_RESOURCE: str(gpus)}
    resources = [{"name": name, "nominalQuota": quota} for name, quota in nominal.items()]
    group = {"coveredResources": [*nominal], "flavors": [{"name": "any", "resources": resources}]}
    return {"namespaceSelector": {}, "resourceGroups": [group]}


def _of_kueue(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    api = f"kueue.x-k8s.io/{_api(version)}"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _api(version: str) -> str:
    """The newest one that a release serves."""
    return "v1beta1" if version.startswith("0.14.") else "v1beta2"
