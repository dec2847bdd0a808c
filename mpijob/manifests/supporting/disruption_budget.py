"""PodDisruptionBudget: drains of nodes keep `workers.min`; the scheduler's preemption only prefers to."""

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.manifest import Manifest, metadata, pods_of


def manifests(spec: JobSpec) -> list[Manifest]:
    """The budget, where one is asked for."""
    if not spec.disruption_budget:
        return []
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(spec, f"{spec.name}-workers"),
        "spec": {
            "minAvailable": spec.workers.min,
            "selector": {"matchLabels": pods_of(spec, Role.WORKER)},
            # A worker that is not Ready does not train: it must not hold a drain up.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
    return [budget]
