"""Fewer workers, without a loss: which ones go, and when the MPI Operator may be told.

The operator takes the highest indexes at once, with no drain (mpi-operator 410). So nobody lowers the replicas: an
annotation on the MPIJob says how many workers are wanted, discovery stops offering the ones that the operator would
take, and only when they have left the training are the replicas lowered. More workers are asked for at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.discovery.rules.views import PodView, WorkerView
from hvd_elastic.mpijob.contract import ANNOTATION_WANTED_WORKERS, WorkerState

Json = Mapping[str, Any]

LEAVE_SECONDS: Final = 120.0
"""A victim that has not left by then is deleted all the same: it still gets SIGTERM and its grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The part of an MPIJob that decides anything here."""

    uid: str
    replicas: int = 0
    """Of its workers."""
    slots: int = 1
    """Processes per worker."""
    wanted: str = ""
    """ANNOTATION_WANTED_WORKERS as it stands there; empty where nobody asks."""

    @classmethod
    def from_json(cls, job: Json) -> "JobView":
        """Read an MPIJob, v2beta1 or v1, as the API server sends it."""
        meta = job["metadata"]
        spec = job.get("spec", {})
        worker = spec.get("mpiReplicaSpecs", {}).get("Worker") or {}
        return cls(
            uid=meta["uid"],
            replicas=int(worker.get("replicas") or 0),
            slots=int(spec.get("slotsPerWorker") or 1),
            wanted=str((meta.get("annotations") or {}).get(ANNOTATION_WANTED_WORKERS) or ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDown:
    """What to do about the number of workers."""

    victims: frozenset[str] = frozenset()
    """UIDs that are offered no more."""
    replicas: int | None = None
    """To be set on the MPIJob now; None: not yet, or nothing to do."""
    refused: str = ""
    """Why what is asked for is not done."""


def resize(
    job: JobView,
    pods: Iterable[PodView],
    workers: Mapping[str, WorkerView],
    *,
    min_workers: int,
    max_workers: int,
    waited_seconds: float = 0.0,
) -> ScaleDown:
    """Decide. `waited_seconds`: since the victims were chosen."""
    if not job.wanted:
        return ScaleDown()
    wanted = int(job.wanted) if job.wanted.isascii() and job.wanted.isdigit() else -1
    if not min_workers <= wanted <= max_workers:
        return ScaleDown(refused=f"{job.wanted} workers wanted, the job has {min_workers} to {max_workers}")
    if wanted >= job.replicas:
        return ScaleDown(replicas=wanted if wanted > job.replicas else None)
    victims = [pod for pod in pods if pod.index is not None and pod.index >= wanted]
    gone = waited_seconds >= LEAVE_SECONDS or all(_has_left(pod, workers.get(pod.uid)) for pod in victims)
    return ScaleDown(victims=frozenset(pod.uid for pod in victims), replicas=wanted if gone else None)


def _has_left(pod: PodView, worker: WorkerView | None) -> bool:
    if pod.phase != "Running" or not pod.ready:
        return True  # its port is closed, or it never began
    return worker is not None and (worker.lost or worker.state is WorkerState.WAITING)
