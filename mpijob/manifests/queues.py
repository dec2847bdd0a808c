"""Queues that admit a job: Kueue, Volcano, KAI.

Volcano and KAI know gangs: `schedulingPolicy.minAvailable` is the part that they admit together and do not reclaim, the
workers above it are taken and given back one by one. Kueue admits and evicts a job as a whole.
"""

from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSystem
from hvd_elastic.mpijob.manifests.manifest import Manifest, pruned

_KUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_KAI_LABEL: Final = "kai.scheduler/queue"
_SCHEDULERS: Final = {QueueSystem.VOLCANO: "volcano", QueueSystem.KAI: "kai-scheduler"}


def scheduler_name(spec: JobSpec) -> str | None:
    """`schedulerName` of the pods; None: the cluster's own."""
    return _SCHEDULERS.get(spec.queue.system) if spec.queue else None


def job_labels(spec: JobSpec) -> dict[str, str]:
    """Labels by which the queue knows the job."""
    if spec.queue is None or spec.queue.system is QueueSystem.VOLCANO:
        return {}
    return {_KUEUE_LABEL if spec.queue.system is QueueSystem.KUEUE else _KAI_LABEL: spec.queue.name}


def pod_labels(spec: JobSpec) -> dict[str, str]:
    """Labels by which the queue knows the pods. Kueue must not see them there: it would admit each pod by itself."""
    return job_labels(spec) if spec.queue and spec.queue.system is QueueSystem.KAI else {}


def scheduling_policy(spec: JobSpec, *, launcher: bool = True) -> Manifest:
    """`runPolicy.schedulingPolicy`.

    `minAvailable` is the guaranteed part: an operator with gang scheduling would otherwise wait for all workers.
    `priorityClass` is the workers': a queue would otherwise rank the whole job by its launcher.
    """
    return pruned(
        minAvailable=spec.workers.min + launcher,
        queue=spec.queue.name if spec.queue and spec.queue.system is QueueSystem.VOLCANO else None,
        priorityClass=spec.priority.workers,
    )
