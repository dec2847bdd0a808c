"""What all kinds of jobs share (MPIJob v2beta1 and v1, PyTorchJob): metadata, run policy, replica specs."""

from typing import Any

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.job_json import as_json
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import queues
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, without_empty


def job_metadata(spec: JobSpec) -> Manifest:
    """Metadata of the job, with the queue's labels and an annotation that holds the whole job description."""
    meta = metadata(spec, spec.name, annotations={**spec.annotations, ANNOTATION_SPEC: as_json(spec)})
    return {**meta, "labels": {**meta["labels"], **queues.job_labels(spec)}}


def run_policy(spec: JobSpec, *, has_launcher: bool = True) -> Manifest:
    """`runPolicy`. `cleanPodPolicy: All` deletes Failed workers too; the launcher's log stays for `keep` seconds."""
    return without_empty(
        cleanPodPolicy="All",
        ttlSecondsAfterFinished=spec.keep,
        activeDeadlineSeconds=spec.deadline,
        backoffLimit=spec.restarts,
        schedulingPolicy=queues.scheduling_policy(spec, has_launcher=has_launcher),
        suspend=spec.suspend or None,
    )


def replicas(count: int, template: dict[str, Any], *, restart: str = "Never") -> Manifest:
    """The replica spec of one role.

    With `Never` a launcher that failed gets a new pod. That pod's UID fences off late writes of the old one.
    """
    return {"replicas": count, "restartPolicy": restart, "template": template}
