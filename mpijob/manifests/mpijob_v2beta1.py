"""The MPIJob itself, `kubeflow.org/v2beta1`: MPI Operator 0.6 to 0.8."""

from typing import Any

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.job_json import as_json
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import launcher_pod, queues, worker_pod
from hvd_elastic.mpijob.manifests.manifest import Manifest, metadata, pruned
from hvd_elastic.mpijob.manifests.pod_parts import SSH_FOLDER
from hvd_elastic.mpijob.manifests.supporting import rbac


def manifest(spec: JobSpec) -> Manifest:
    """The MPIJob."""
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": job_metadata(spec),
        "spec": {
            "slotsPerWorker": spec.workers.slots,
            "sshAuthMountPath": SSH_FOLDER,
            # WaitForWorkersReady would wait for all of them, and idle capacity is what is not always there.
            "launcherCreationPolicy": "AtStartup",
            "runPolicy": run_policy(spec),
            "mpiReplicaSpecs": {
                "Launcher": replicas(1, launcher_pod.pod_template(spec, service_account=rbac.name(spec))),
                "Worker": replicas(spec.workers.max, worker_pod.pod_template(spec)),
            },
        },
    }


def job_metadata(spec: JobSpec) -> Manifest:
    """Metadata of the job, with its whole description and the queue's labels."""
    meta = metadata(spec, spec.name, annotations={**spec.annotations, ANNOTATION_SPEC: as_json(spec)})
    return {**meta, "labels": {**meta["labels"], **queues.job_labels(spec)}}


def run_policy(spec: JobSpec, *, has_launcher: bool = True) -> Manifest:
    """`runPolicy`. `All` takes Failed workers away too; the launcher's log stays for `keep` seconds."""
    return pruned(
        cleanPodPolicy="All",
        ttlSecondsAfterFinished=spec.keep,
        activeDeadlineSeconds=spec.deadline,
        backoffLimit=spec.restarts,
        schedulingPolicy=queues.scheduling_policy(spec, launcher=has_launcher),
        suspend=spec.suspend or None,
    )


def replicas(count: int, template: dict[str, Any], *, restart: str = "Never") -> Manifest:
    """A replica spec. A launcher that failed gets a new pod, whose UID fences the old one's writes out."""
    return {"replicas": count, "restartPolicy": restart, "template": template}
