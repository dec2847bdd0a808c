"""Fewer workers without a loss: which ones go, and when the MPI Operator may delete them.

The operator deletes the highest indexes at once, with no drain (mpi-operator 410). So users do not lower the replicas:
an annotation on the MPIJob says how many workers are wanted, discovery stops offering those that the operator would
delete, and lowers the replicas only when they have left the training. A larger number is set at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import JobView, PodView, WorkerView
from hvd_elastic.mpijob.contract import WorkerState
from hvd_elastic.system.untrusted_values import decimal_count

_SHOWN: Final = 20
"""Characters of what somebody wrote in a number's place."""
LEAVE_SECONDS: Final = 120.0
"""A victim that has not left by then is deleted all the same: it still gets SIGTERM and its grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """What to do about the number of workers."""

    victims: frozenset[str] = frozenset()
    """UIDs of workers to be offered no longer."""
    replicas: int | None = None
    """To be set on the MPIJob now. None: not yet, or nothing to do."""
    refusal: str = ""
    """Why the request cannot be met; empty if it can."""


def plan_scale(
    job: JobView,
    pods: Iterable[PodView],
    workers: Mapping[str, WorkerView],
    *,
    min_workers: int,
    max_workers: int,
    waited_seconds: float = 0.0,
) -> ScalePlan:
    """Compare the wanted number of workers with the replicas. `waited_seconds`: since the victims were chosen."""
    if not job.wanted:
        return ScalePlan()
    wanted = decimal_count(job.wanted)
    if wanted is None or not min_workers <= wanted <= max_workers:
        said = job.wanted[:_SHOWN]
        return ScalePlan(refusal=f"wanted: {said}, but the job has {min_workers} to {max_workers} workers")
    if wanted >= job.replicas:
        return ScalePlan(replicas=wanted if wanted > job.replicas else None)
    victims = [pod for pod in pods if pod.index is not None and pod.index >= wanted]
    gone = waited_seconds >= LEAVE_SECONDS or all(_has_left(pod, workers.get(pod.uid)) for pod in victims)
    return ScalePlan(victims=frozenset(pod.uid for pod in victims), replicas=wanted if gone else None)


def _has_left(pod: PodView, worker: WorkerView | None) -> bool:
    if pod.phase != "Running" or not (pod.may_answer and (worker or not pod.starting)):
        return True  # its port is closed, or it never began
    return worker is not None and (worker.lost or worker.state is WorkerState.WAITING)
