"""What all kinds of jobs share (MPIJob v2beta1 and v1, PyTorchJob): metadata, run policy, replica specs."""

from typing import Any

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import queues
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, without_empty


def job_metadata(spec: JobSpec) -> Manifest:
    """Metadata of the job, with the queue's labels and an annotation that holds the whole job description."""
    meta = metadata(spec, spec.name, annotations={**spec.annotations, ANNOTATION_SPEC: spec.as_json()})
    return {**meta, "labels": {**meta["labels"], **queues.job_labels(spec)}}


def run_policy(spec: JobSpec, *, has_launcher: bool = True, restarts: int | None = None) -> Manifest:
    """`runPolicy`. `cleanPodPolicy: All` deletes Failed workers too; the launcher's log stays for `keep` seconds.

    `restarts`: launchers that may fail. None for the training-operator: it starts no second launcher, and to it a limit
    of 0 means that a failed worker ends the job (training-operator 1.8, `pkg/controller.v1/common/job.go`,
    `exceedsBackoffLimit`; its work queue counts no retries).
    """
    return without_empty(
        cleanPodPolicy="All",
        ttlSecondsAfterFinished=spec.keep,
        activeDeadlineSeconds=spec.deadline,
        backoffLimit=restarts,
        schedulingPolicy=queues.scheduling_policy(spec, has_launcher=has_launcher),
        suspend=spec.suspend or None,
    )


def replicas(count: int, template: dict[str, Any], *, restart: str = "Never") -> Manifest:
    """The replica spec of one role.

    With `Never` a launcher that failed gets a new pod. That pod's UID fences off late writes of the old one.
    """
    return {"replicas": count, "restartPolicy": restart, "template": template}
