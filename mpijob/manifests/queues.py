"""Queues that admit a job: Kueue, Volcano, KAI.

Volcano and KAI schedule gangs: they admit `schedulingPolicy.minAvailable` pods together and do not reclaim them. They
add and reclaim the workers above that number one by one. Kueue admits and evicts a job as a whole.
"""

from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSystem
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, without_empty

_KUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_KAI_LABEL: Final = "kai.scheduler/queue"
_SCHEDULERS: Final = {QueueSystem.VOLCANO: "volcano", QueueSystem.KAI: "kai-scheduler"}


def scheduler_name(spec: JobSpec) -> str | None:
    """`schedulerName` of the pods. None: the cluster's default scheduler."""
    return _SCHEDULERS.get(spec.queue.system) if spec.queue else None


def job_labels(spec: JobSpec) -> dict[str, str]:
    """Labels of the job that name its queue."""
    if spec.queue is None or spec.queue.system is QueueSystem.VOLCANO:
        return {}
    return {_KUEUE_LABEL if spec.queue.system is QueueSystem.KUEUE else _KAI_LABEL: spec.queue.name}


def pod_labels(spec: JobSpec) -> dict[str, str]:
    """Labels of the pods that name the queue. Kueue must not find any there: it would admit each pod by itself."""
    return job_labels(spec) if spec.queue and spec.queue.system is QueueSystem.KAI else {}


def scheduling_policy(spec: JobSpec, *, has_launcher: bool = True) -> Manifest:
    """`runPolicy.schedulingPolicy`.

    Without `minAvailable`, the guaranteed number of pods, an operator with gang scheduling would wait for all workers.
    Without the workers' `priorityClass`, a queue would rank the whole job by its launcher.
    """
    return without_empty(
        minAvailable=spec.workers.min + has_launcher,
        queue=spec.queue.name if spec.queue and spec.queue.system is QueueSystem.VOLCANO else None,
        priorityClass=spec.priority.workers,
    )
