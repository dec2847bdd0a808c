"""Two ClusterQueues of Kueue in a cohort: serving, whose GPUs training borrows, and training, whose own are its floor.

- Serving takes back what it has lent, from the workers that were admitted last (`reclaimWithinCohort: Any`): one by
  one, and never from within training's nominal quota (Kueue 0.19, `pkg/scheduler/preemption/classical`).
- Training lends nothing (`lendingLimit`), so serving is never evicted for it.
- In training's queue a worker of a higher class, one of a floor, takes the place of a lower one (`LowerPriority`).
- All that pods ask for must be covered, so CPU and memory are, with more than there is: GPUs decide.
"""

from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.priorityclasses.admission_policy import LABELS

SERVING: Final = "serving"
TRAINING: Final = "training"
_COHORT: Final = "gpus"
_FLAVOR: Final = "any-node"
_API: Final = "kueue.x-k8s.io/v1beta2"
_PLENTY: Final = {"cpu": "1000000", "memory": "1Pi", "ephemeral-storage": "1Pi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGpus:
    """How the GPUs of a cluster are divided."""

    serving: int
    """Those that inference may always have."""
    training: int = 0
    """Those that training keeps, of all jobs in its queue together."""
    resource: str = GPU_RESOURCE


def kueue_queues(gpus: QueueGpus) -> list[dict[str, Any]]:
    """A flavor for any node, and the two ClusterQueues. LocalQueues are for the namespaces' owners."""
    serving = {"reclaimWithinCohort": "Any"}
    training = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    return [
        _object("ResourceFlavor", _FLAVOR, {}),
        _object("ClusterQueue", SERVING, _queue(gpus.resource, {"nominalQuota": str(gpus.serving)}, serving)),
        _object(
            "ClusterQueue",
            TRAINING,
            _queue(gpus.resource, {"nominalQuota": str(gpus.training), "lendingLimit": "0"}, training),
        ),
    ]


def _queue(resource: str, quota: dict[str, str], preemption: dict[str, str]) -> dict[str, Any]:
    resources = [
        {"name": resource, **quota},
        *({"name": name, "nominalQuota": plenty} for name, plenty in _PLENTY.items()),
    ]
    flavor = {"name": _FLAVOR, "resources": resources}
    return {
        "cohortName": _COHORT,
        "namespaceSelector": {},
        "preemption": preemption,
        "resourceGroups": [{"coveredResources": [one["name"] for one in resources], "flavors": [flavor]}],
    }


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, "labels": dict(LABELS)}, "spec": spec}
