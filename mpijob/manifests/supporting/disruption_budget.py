"""PodDisruptionBudget: a node drain keeps `workers.min` workers. The scheduler's preemption only tries to."""

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, pod_selector


def manifests(spec: JobSpec) -> list[Manifest]:
    """The budget, if the description has `disruption_budget`."""
    if not spec.disruption_budget:
        return []
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(spec, f"{spec.name}-workers"),
        "spec": {
            "minAvailable": spec.workers.min,
            "selector": {"matchLabels": pod_selector(spec, Role.WORKER)},
            # A worker that is not Ready does not train, so it must not block a drain.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
    return [budget]
