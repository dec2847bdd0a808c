"""What a cluster must have before a job is written into it: one sentence for each thing that it lacks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    ForbiddenError,
    Json,
    NotFoundError,
    Read,
)
from hvd_elastic.client.connection.server_version import OLDEST_MINOR, minor
from hvd_elastic.mpijob.contract import LABEL_REPLICA_INDEX, Exit
from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSystem
from hvd_elastic.mpijob.manifests.supporting import bucket_volume

_SERVER: Final = "/version"
_GROUP: Final = "/apis/kubeflow.org"
_VERSION: Final = "/apis/kubeflow.org/v2beta1"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
_MONITORING: Final = "/apis/monitoring.coreos.com/v1"
_KUEUE: Final = "/apis/kueue.x-k8s.io"
_KUEUE_SCHEMA: Final = "/openapi/v3/apis/kueue.x-k8s.io/v1beta2"
_OF_0_18: Final = "concurrentAdmissionPolicy"
"""A field that the ClusterQueues of Kueue have from 0.18 on (its `config/components/crd/bases`). Everybody may read
schemas, and few the Deployment of Kueue."""
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"

Answers = Mapping[str, Json | ClusterError]
"""By path. What may not be read says nothing about the cluster."""


class NotReadyError(ClusterError):
    """The cluster lacks what the job needs. Nothing was written."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisites:
    """What one job needs of a cluster."""

    namespace: str
    classes: tuple[str, ...]
    monitor: bool
    bucket: str = ""
    """URL of the bucket that is `output`; empty: that is none."""
    driver: str = ""
    """What mounts it."""
    queues_workers: bool = False
    """Whether Kueue is to admit each worker by itself."""

    @classmethod
    def of(cls, spec: JobSpec) -> "Prerequisites":
        """Those of a job description."""
        launcher = spec.priority.floor if spec.workers.floor else spec.priority.launcher
        queue = spec.queue
        bucket = spec.output.bucket if spec.output else None
        return cls(
            namespace=spec.namespace,
            classes=tuple(dict.fromkeys((launcher, spec.priority.workers))),
            monitor=spec.monitor,
            bucket=bucket.url if bucket else "",
            driver=bucket_volume.driver(bucket) if bucket else "",
            queues_workers=queue is not None and queue.system is QueueSystem.KUEUE and not queue.whole,
        )

    def reads(self) -> Sequence[Read]:
        """What must be asked."""
        paths = [_SERVER, _GROUP, _VERSION, self._namespace_path, *(f"{_CLASSES}/{name}" for name in self.classes)]
        more = [_MONITORING] if self.monitor else []
        more += [self._driver_path] if self.driver else []
        more += [_KUEUE, _KUEUE_SCHEMA] if self.queues_workers else []
        return [Read(path=path) for path in [*paths, *more]]

    def lacking(self, answers: Answers) -> Iterator[str]:
        """A sentence for each thing that the cluster lacks, with the way out."""
        yield from _too_old(answers.get(_SERVER))
        if _is_absent(answers, self._namespace_path):
            yield f"there is no namespace {self.namespace}: kubectl create namespace {self.namespace}"
        yield from _without_mpijobs(answers)
        if absent := [name for name in self.classes if _is_absent(answers, f"{_CLASSES}/{name}")]:
            many = "Classes" if len(absent) > 1 else "Class"
            yield (
                f"the Priority{many} {' and '.join(absent)} {'are' if len(absent) > 1 else 'is'} missing: "
                "hvd-elastic priorityclasses | kubectl apply -f -"
            )
        if self.monitor and _is_absent(answers, _MONITORING):
            yield "monitor: the Prometheus Operator is missing (no PodMonitor of monitoring.coreos.com/v1): install it"
        if self.driver and _is_absent(answers, self._driver_path):
            way_out = f"{bucket_volume.DRIVERS[self.driver]}, or name a claim as output"
            yield f"output: the cluster has no CSI driver {self.driver}, so no pod could mount {self.bucket}: {way_out}"
        if self.queues_workers:
            yield from _without_kueue(answers)

    @property
    def _driver_path(self) -> str:
        return f"{_DRIVERS}/{self.driver}"

    @property
    def _namespace_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"


def floor_refusal(cluster: ClusterClient, spec: JobSpec, job: Json) -> str:
    """Why the cluster would not keep the workers of `workers.floor`; empty: it would, or this cannot be known.

    The operator gives up at its first refused pod: without worker 0 there is no other worker, and no launcher (seen
    with 0.8.2). So a pod with all GPUs of the floor is rehearsed: nothing is written. Raises ClusterError.
    """
    template = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    labels = {**template["metadata"]["labels"], LABEL_REPLICA_INDEX: "0"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": f"{spec.name}-floor", "labels": labels},
        "spec": {
            **template["spec"],
            "containers": [_of_whole_floor(one, spec) for one in template["spec"]["containers"]],
        },
    }
    try:
        made = cluster.create(f"/api/v1/namespaces/{spec.namespace}/pods", pod, dryRun="All")
    except ForbiddenError as error:
        if " cannot create resource " in str(error):
            return _without_policies(cluster)
        return f"workers.floor: its pods are refused, and then there is no pod at all: {error}"
    if made["spec"].get("priorityClassName") == spec.priority.floor:
        return ""
    return _without_policies(cluster) or (
        f"workers.floor: nothing gives its pods the PriorityClass {spec.priority.floor}: hvd-elastic platform-kit kit "
        "--with floor, and kubectl apply --server-side -k kit"
    )


def _of_whole_floor(container: Json, spec: JobSpec) -> Json:
    """With as many GPUs as all workers of the floor have, for a quota to judge."""
    resource, gpus = spec.workers.gpu_resource, str(spec.workers.floor * spec.workers.gpus)
    amounts = container.get("resources") or {}
    if resource not in (amounts.get("limits") or {}):
        return container
    return {**container, "resources": {key: {**amounts[key], resource: gpus} for key in ("requests", "limits")}}


def _without_policies(cluster: ClusterClient) -> str:
    """Why no policy of the cluster can give a floor; empty: one can."""
    if any(one.get("name") == "mutatingadmissionpolicies" for one in cluster.get(_ADMISSION).get("resources") or ()):
        return ""
    version = cluster.get(_SERVER).get("gitVersion", "")
    return (
        f"workers.floor: the API server, Kubernetes {version}, serves no MutatingAdmissionPolicies of v1: they are on "
        "by default from 1.36 on; upgrade it or turn them on, or leave workers.floor out"
    )


def _without_kueue(answers: Answers) -> Iterator[str]:
    if _is_absent(answers, _KUEUE):
        yield "queue: the cluster has no Kueue (no group kueue.x-k8s.io): install it, or leave queue out"
        return
    schema = answers.get(_KUEUE_SCHEMA)
    if _is_absent(answers, _KUEUE_SCHEMA) or (isinstance(schema, dict) and not _is_of_0_18(schema)):
        yield (
            "queue: this Kueue is older than 0.18, and would take a new worker for the dead one of its name: set "
            "queue.whole, or upgrade it"
        )


def _is_of_0_18(schema: Json) -> bool:
    schemas = (schema.get("components") or {}).get("schemas") or {}
    found = (one for name, one in schemas.items() if name.endswith(".ClusterQueue"))
    specs = ((one.get("properties") or {}).get("spec") or {} for one in found)
    return any(_OF_0_18 in (spec.get("properties") or {}) for spec in specs)


def _too_old(server: Json | ClusterError | None) -> Iterator[str]:
    """An older API server drops the sidecar's `restartPolicy`, and then refuses the launcher for the sidecar's probes
    (`validateInitContainers` of Kubernetes 1.34): workers would hold their GPUs without one.
    """
    version = str(server.get("gitVersion", "")) if isinstance(server, dict) else ""
    if 0 < minor(version) < OLDEST_MINOR:
        yield f"the cluster is Kubernetes {version}, which has no native sidecars: upgrade to 1.{OLDEST_MINOR} or later"


def _without_mpijobs(answers: Answers) -> Iterator[str]:
    if _is_absent(answers, _GROUP):
        yield "this cluster has no MPIJobs (no CRD mpijobs.kubeflow.org): hvd-elastic doctor says how to install them"
    elif _is_absent(answers, _VERSION) or not _serves_mpijobs(answers[_VERSION]):
        yield (
            f"the MPIJobs of this cluster are of {_versions(answers[_GROUP])}, not of kubeflow.org/v2beta1: install "
            "the MPI Operator (hvd-elastic doctor says how), or use hvd-elastic generate --as mpijob-v1"
        )


def _is_absent(answers: Answers, path: str) -> bool:
    return isinstance(answers.get(path), NotFoundError)


def _serves_mpijobs(version: Json | ClusterError) -> bool:
    return not isinstance(version, dict) or any(one["name"] == "mpijobs" for one in version.get("resources", ()))


def _versions(group: Json | ClusterError) -> str:
    versions: Sequence[Any] = group.get("versions", ()) if isinstance(group, dict) else ()
    return ", ".join(one["groupVersion"] for one in versions) or "another version"
