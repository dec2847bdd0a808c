"""Deleting a job: what goes with it, what stays, and the order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    ForbiddenError,
    NotFoundError,
    Read,
)
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.job_lookup import UnknownJobError
from hvd_elastic.client.operations.resource_paths import VOLUME_KINDS, collection_path, mpijob_path, object_path
from hvd_elastic.client.operations.submitted_job import find_submitted
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_MANAGED_BY, LABEL_PART_OF, MANAGED_BY
from hvd_elastic.system.plain_words import count_words

_NAMESPACED: Final = (
    ("v1", "Pod"),
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("v1", "PersistentVolumeClaim"),
)
_CLUSTER_WIDE: Final = (
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("v1", "PersistentVolume"),
    ("storage.k8s.io/v1", "StorageClass"),
)
POLL_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of a job."""

    kind: str
    name: str
    path: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPlan:
    """What a deletion would take along."""

    name: str
    namespace: str
    job: Part | None
    """The MPIJob; None: it is gone already, and something of it is left."""
    pods: Sequence[Part]
    """The operator's: they go with the MPIJob."""
    beside: Sequence[Part]
    ending: str
    """Pods whose end is waited for, in words; empty: there are none."""
    volumes: Sequence[Part]
    """Claims, volumes and classes that were made for this job. They go only if that is asked for."""

    def parts(self, *, volumes: bool) -> Sequence[Part]:
        """Everything that would go."""
        job = [self.job] if self.job else []
        return [*job, *self.pods, *self.beside, *(self.volumes if volumes else ())]


def plan_deletion(cluster: ClusterClient, name: str) -> DeletionPlan:
    """Look what belongs to a job. What the caller may not read is left out.

    Raises UnknownJobError if nothing is left of it; ForeignJobError; other ClusterErrors.
    """
    unknown: UnknownJobError | None = None
    job: Part | None = None
    try:
        found = find_submitted(cluster, name)
        job = Part(kind="MPIJob", name=name, path=mpijob_path(cluster.namespace, name), uid=found.uid)
    except UnknownJobError as error:
        unknown = error
    parts = list(_parts(cluster, name))
    if unknown and not parts:
        raise unknown
    return DeletionPlan(
        name=name,
        namespace=cluster.namespace,
        job=job,
        pods=[part for part in parts if part.kind == "Pod"],
        beside=[part for part in parts if part.kind != "Pod" and part.kind not in VOLUME_KINDS],
        ending=pods_ending(cluster, name),
        volumes=[part for part in parts if part.kind in VOLUME_KINDS],
    )


def pods_ending(cluster: ClusterClient, name: str) -> str:
    """`4 pods, each with 60 s to end`; empty: no pod of the job runs, or the caller may not read them."""
    read = Read(
        path=collection_path("v1", "Pod", cluster.namespace), query={"labelSelector": f"{LABEL_JOB_NAME}={name}"}
    )
    (answer,) = cluster.gather([read])
    pods = [] if isinstance(answer, ClusterError) else answer["items"]
    graces = [
        int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
    ]
    return f"{count_words(len(graces), 'pod')}, each with {max(graces)} s to end" if graces else ""


def delete(
    cluster: ClusterClient, plan: DeletionPlan, *, volumes: bool, sleep: Callable[[float], None]
) -> Sequence[Part]:
    """Delete the MPIJob, wait until it and its pods are gone, then delete what stood beside it, then volumes.

    Returns what was deleted. Raises ClusterError.
    """
    if plan.job:
        delete_and_wait(cluster, plan.job, sleep=sleep)
    rest = [*plan.beside, *(plan.volumes if volumes else ())]
    wait = LongWait(sleep=sleep)
    for part in rest:
        wait.look(partial(remove, cluster, part))
    return [*([plan.job] if plan.job else []), *rest]


def delete_and_wait(cluster: ClusterClient, job: Part, *, sleep: Callable[[float], None]) -> None:
    """Delete an MPIJob after its pods, and wait for its end. One that is gone already is no error."""
    wait = LongWait(sleep=sleep)
    wait.look(partial(remove, cluster, job, propagation="Foreground"))
    while wait.look(partial(_is_there, cluster, job)):
        sleep(POLL_SECONDS)


def remove(cluster: ClusterClient, part: Part, *, propagation: str = "") -> None:
    """Delete one object, if it is still the same one. Raises ClusterError."""
    try:
        cluster.delete(part.path, uid=part.uid, propagation=propagation)
    except NotFoundError:
        return


def _is_there(cluster: ClusterClient, part: Part) -> bool:
    try:
        return bool(cluster.get(part.path)["metadata"].get("uid", "") == part.uid)
    except NotFoundError:
        return False


def _parts(cluster: ClusterClient, name: str) -> Iterator[Part]:
    query = {"labelSelector": f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_PART_OF}={name}"}
    kinds = [
        *((version, kind, cluster.namespace) for version, kind in _NAMESPACED),
        *((version, kind, None) for version, kind in _CLUSTER_WIDE),
    ]
    reads = [Read(path=collection_path(*kind), query=query) for kind in kinds]
    for (version, kind, namespace), answer in zip(kinds, cluster.gather(reads), strict=True):
        if isinstance(answer, NotFoundError | ForbiddenError):
            continue  # there is no such kind, or the caller may not read it
        if isinstance(answer, ClusterError):
            raise answer  # what was not read must not pass for what is not there
        for item in answer["items"]:
            # A job of the same name in another namespace has the same labels.
            if namespace or item["metadata"]["name"].startswith(f"{cluster.namespace}.{name}."):
                yield _part(version, kind, item)


def _part(version: str, kind: str, item: Mapping[str, Any]) -> Part:
    path = object_path({"apiVersion": version, "kind": kind, "metadata": item["metadata"]})
    return Part(kind=kind, name=item["metadata"]["name"], path=path, uid=item["metadata"].get("uid", ""))
