"""What a rehearsal makes in its namespace: a small job, and the inference pod that it gives way to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.doctor.rehearsal_stage import WORKERS, Stage
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, MANAGED_BY, Engine
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.pod_parts import container_security, pod_security
from hvd_elastic.mpijob.manifests.render import render

JOB: Final = "rehearsal"
INFERENCE: Final = "inference"
INFERENCE_CLASS: Final = "inference-pc"
_PREFIX: Final = "hvd-elastic-rehearsal-"
_MODULE: Final = "hvd_elastic.jobs.doctor.rehearsal_training"
"""By its path of 0.1, which leads to the new one: a job's image may be older than the command line."""
_ANY_TAINT: Final = {"operator": "Exists"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalImage:
    """The image of a rehearsal's job."""

    name: str
    engine: Engine = Engine.HOROVOD
    """What its scripts train over. One without Horovod rehearses with torch.distributed alone."""


def namespace(suffix: str) -> Json:
    """The namespace of one rehearsal. Whoever deletes it deletes all of the rehearsal."""
    metadata = {"name": f"{_PREFIX}{suffix}", "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def job(namespace: str, image: RehearsalImage, stage: Stage, resource: str) -> Sequence[Json]:
    """The job's manifests, in the order in which they are made. Its workers run on the stage's nodes only.

    Raises InvalidInputError if `image` or `resource` cannot be one.
    """
    spec = read_job(
        None,
        {
            "name": JOB,
            "namespace": namespace,
            "image": image.name,
            "engine": image.engine.value,
            "command": ["python", "-m", _MODULE],
            "workers": {
                "min": 1,
                "start": WORKERS,
                "max": WORKERS,
                "gpus": 1,
                "gpu_resource": resource,
                "cpu": "100m",
                "memory": "2Gi",
            },
            "launcher": {"kind": "launch", "cpu": "100m"},
            "restarts": 0,
        },
    )
    manifests = render(spec, Target.MPIJOB)
    (mpijob,) = (one for one in manifests if one["kind"] == "MPIJob")
    template = mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    _place(template, stage.nodes)
    return manifests


def inference(namespace: str, image: str, stage: Stage, resource: str) -> Json:
    """A pod that does nothing, of inference's class, on one node of the stage."""
    spec: Json = {
        "priorityClassName": INFERENCE_CLASS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "securityContext": pod_security(shared_group=False),
        "containers": [
            {
                "name": "inference",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
                "securityContext": container_security(),
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"memory": "64Mi", resource: str(stage.inference_gpus)},
                },
            }
        ],
    }
    _place(spec, [stage.inference_node])
    metadata = {"name": INFERENCE, "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def collection(manifest: Json) -> str:
    """The API path to which a manifest is posted."""
    version, kind = manifest["apiVersion"], manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    space = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{space}/{plural}" if space else f"{root}/{plural}"


def _place(pod: Json, nodes: Sequence[str]) -> None:
    """On these nodes only, whatever their taints are: they were chosen by hand."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["affinity"] = {**pod.get("affinity", {}), "nodeAffinity": required}
    pod["tolerations"] = [_ANY_TAINT]
