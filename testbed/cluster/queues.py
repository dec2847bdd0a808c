"""Queues of Kueue for the GPUs of the spot node: serving's own, which training borrows, and training's, its floor.

From Kueue 0.18 on they are those that `hvd-elastic platform-kit --with kueue` makes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.setup.platform_kit import kueue_queues
from hvd_elastic.setup.platform_kit.kueue_queues import QueueGpus
from testbed.cluster.site import Site
from testbed.kube import gomodules, kueue
from testbed.kube.kubectl import Kubectl

TRAINING: Final = kueue_queues.TRAINING
SERVING: Final = kueue_queues.SERVING
SERVING_CLASS: Final = "floor-pc"
"""Of inference in a queue: the scheduler may not look for a second victim while the first one leaves."""


@contextmanager
def kueue_with_queues(
    site: Site, *, gpus: int, floor: int = 0, version: str = gomodules.VERSIONS["kueue"][0]
) -> Iterator[None]:
    """Kueue and both ClusterQueues. No job may be left in them at the end.

    `floor`: GPUs, of all, that are training's own.
    """
    manager = kueue.manager(version)
    try:
        manager.start(site.local())
        site.kubectl.apply(_cluster_queues(QueueGpus(serving=gpus - floor, training=floor), version))
        yield
    finally:
        manager.stop(site.local())


def open_queues(kubectl: Kubectl, version: str = gomodules.VERSIONS["kueue"][0]) -> None:
    """Make a queue of each name in a namespace."""
    api = "v1beta1" if _is_old(version) else "v1beta2"
    kubectl.apply(
        {
            "apiVersion": f"kueue.x-k8s.io/{api}",
            "kind": "LocalQueue",
            "metadata": {"name": name},
            "spec": {"clusterQueue": name},
        }
        for name in (TRAINING, SERVING)
    )


def reserved_gpus(kubectl: Kubectl) -> int:
    """How many GPUs have a quota now, in all namespaces: of Workloads of one pod with one GPU each."""
    found = kubectl.list("workloads.kueue.x-k8s.io", everywhere=True)
    conditions = ({one["type"]: one["status"] for one in each["status"].get("conditions", ())} for each in found)
    return sum(one.get("QuotaReserved") == "True" and one.get("Finished") != "True" for one in conditions)


def _cluster_queues(gpus: QueueGpus, version: str) -> list[dict[str, Any]]:
    return _old_queues(gpus) if _is_old(version) else kueue_queues.kueue_queues(gpus)


def _is_old(version: str) -> bool:
    """Whether it is the release with one version of its API."""
    return version.startswith("0.14.")


def _old_queues(gpus: QueueGpus) -> list[dict[str, Any]]:
    def made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    def queue(own: int) -> dict[str, Any]:
        nominal = {"cpu": "100", "memory": "1Ti", GPU_RESOURCE: str(own)}
        resources = [{"name": name, "nominalQuota": quota} for name, quota in nominal.items()]
        group = {"coveredResources": [*nominal], "flavors": [{"name": "any", "resources": resources}]}
        return {"namespaceSelector": {}, "cohort": "team", "resourceGroups": [group]}

    preemption = {"preemption": {"reclaimWithinCohort": "Any"}}
    return [
        made("ResourceFlavor", "any", {}),
        made("ClusterQueue", TRAINING, queue(gpus.training)),
        made("ClusterQueue", SERVING, {**queue(gpus.serving), **preemption}),
    ]
