"""Queues that admit a job or its workers: Kueue, Volcano, KAI. `docs/job.md` says what each guarantees and takes.

- Volcano (`pkg/scheduler/plugins/gang/gang.go`): evicts pods one by one, and none once `minAvailable` are left, where
  its configuration lets the gang plugin judge that.
- KAI (v0.13, `pkg/scheduler/api/podgroup_info/eviction_info.go`): evicts pods one by one above `minAvailable`, the
  launcher last, and then all the others at once.
- Kueue 0.18 and later (`pkg/controller/jobs/pod/pod_controller.go`): its label on the worker template makes each worker
  a Workload of its own, admitted and evicted alone. The launcher, which has no label, is left alone. With the label on
  the job (`mpijob/mpijob_controller.go`) it admits the job with all its workers, and evicts it by suspending it.
"""

from typing import Final

from hvd_elastic.mpijob.contract import KUEUE_QUEUE, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSystem
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, without_empty

_KAI_QUEUE: Final = "kai.scheduler/queue"
_KAI_PREEMPTIBILITY: Final = "kai.scheduler/preemptibility"
"""KAI from v0.10 on reads it off the job (`pkg/podgrouper/podgrouper/plugins/defaultgrouper/default_grouper.go`).
Without it a job whose priority is 100 or more is not preemptible (`pkg/common/podgroup/preemptible.go`): it never gets
more than its queue's quota, and never gives a GPU back."""
_KAI_PRIORITY: Final = "priorityClassName"
"""Read at the same place. Without it the job has the priority of the pod that KAI looked at last, maybe the launcher's.
"""
_SCHEDULERS: Final = {QueueSystem.VOLCANO: "volcano", QueueSystem.KAI: "kai-scheduler"}


def scheduler_name(spec: JobSpec) -> str | None:
    """`schedulerName` of the pods. None: the cluster's default scheduler."""
    return _SCHEDULERS.get(spec.queue.system) if spec.queue else None


def job_labels(spec: JobSpec) -> dict[str, str]:
    """Labels of the job that name its queue, and tell KAI what it may do with the job."""
    if spec.queue is None:
        return {}
    match spec.queue.system:
        case QueueSystem.KUEUE:
            return {KUEUE_QUEUE: spec.queue.name} if spec.queue.whole else {}
        case QueueSystem.VOLCANO:
            return {}
        case QueueSystem.KAI:
            preemptible = {_KAI_PREEMPTIBILITY: "preemptible", _KAI_PRIORITY: spec.priority.workers}
            return {_KAI_QUEUE: spec.queue.name, **preemptible}


def pod_labels(spec: JobSpec, role: Role) -> dict[str, str]:
    """Labels of a role's pods that name the queue. Kueue must find none on the launcher: it would evict it, too."""
    if spec.queue is None:
        return {}
    match spec.queue.system:
        case QueueSystem.KUEUE:
            return {} if spec.queue.whole or role is Role.LAUNCHER else {KUEUE_QUEUE: spec.queue.name}
        case QueueSystem.VOLCANO:
            return {}
        case QueueSystem.KAI:
            return {_KAI_QUEUE: spec.queue.name}


def scheduling_policy(spec: JobSpec, *, has_launcher: bool = True) -> Manifest:
    """`runPolicy.schedulingPolicy`.

    Without `minAvailable`, the pods that start together, an operator with gang scheduling would wait for all workers.
    Without the workers' `priorityClass`, a queue would rank the whole job by its launcher.
    """
    return without_empty(
        minAvailable=spec.workers.min + has_launcher,
        queue=spec.queue.name if spec.queue and spec.queue.system is QueueSystem.VOLCANO else None,
        priorityClass=spec.priority.workers,
    )
