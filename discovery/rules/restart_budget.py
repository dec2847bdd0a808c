"""How many launchers a job may lose: only those that failed by themselves count, not those that were taken away.

The launcher's Job counts every failed pod against its `backoffLimit`, evicted and drained ones too; the MPIJob cannot
carry the `podFailurePolicy` that would ignore them (mpi-operator 0.8, `pkg/apis/kubeflow/v2beta1/types.go`). The limit
of a Job may be changed while it runs, so it is raised by the number of launchers that were taken away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.discovery.rules.cluster_views import PodView

DEFAULT_BACKOFF_LIMIT: Final = 6
"""Of a Job (https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy)."""
_TAKEN: Final = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"})
"""Values of a pod's `status.reason` by which kubelets before the condition DisruptionTarget say that they ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherJobView:
    """The part of the launcher's Job that is decided by."""

    uid: str
    failed: int = 0
    """Pods that have failed, for whatever reason."""
    limit: int = DEFAULT_BACKOFF_LIMIT

    @classmethod
    def from_json(cls, job: Mapping[str, Any]) -> "LauncherJobView":
        status = job.get("status") or {}
        counted = len((status.get("uncountedTerminatedPods") or {}).get("failed") or ())
        return cls(
            uid=job["metadata"]["uid"],
            failed=int(status.get("failed") or 0) + counted,
            limit=backoff_limit(job.get("spec")),
        )


def backoff_limit(holder: Mapping[str, Any] | None) -> int:
    """The `backoffLimit` of a Job's spec or of an MPIJob's run policy, or what it is by default."""
    limit = (holder or {}).get("backoffLimit")
    return DEFAULT_BACKOFF_LIMIT if limit is None else int(limit)


def was_taken(pod: PodView) -> bool:
    """Whether a launcher's pod is ended by others: deleted, drained, evicted, preempted, or lost with its node."""
    return pod.deleting_at is not None or bool(pod.disruption) or pod.reason in _TAKEN


def own_failures(pods: Iterable[PodView]) -> int:
    """How many launchers have failed by themselves, of those whose pods are still there."""
    return sum(pod.phase == "Failed" and not was_taken(pod) for pod in pods)


def limit_while_running(job: LauncherJobView, pods: Iterable[PodView], *, restarts: int) -> int:
    """The limit while a launcher runs: one more than its own failure may use, in case that it is taken away unseen.

    Args:
        job: the launcher's Job.
        pods: all launchers of the job that are there, failed ones included.
        restarts: how many launchers may fail.
    """
    return _limit(job, pods, restarts=restarts, spare=1)


def limit_after_failure(job: LauncherJobView, pods: Iterable[PodView], *, restarts: int) -> int:
    """The limit when the present launcher ends by itself; the Job has not counted it yet."""
    return _limit(job, pods, restarts=restarts, spare=0)


def limit_when_exhausted(job: LauncherJobView) -> int:
    """The limit when the present launcher ends with the job; the Job has not counted it yet.

    A Job ends when more pods have failed than its limit (Kubernetes 1.34, `pkg/controller/job/job_controller.go`,
    `exceedsBackoffLimit`). Its `podFailurePolicy` would do the same by exit code, but it cannot be changed (`pkg/apis/
    batch/validation/validation.go`, `ValidateJobSpecUpdate`), and an MPIJob has none.
    """
    return job.failed


def _limit(job: LauncherJobView, pods: Iterable[PodView], *, restarts: int, spare: int) -> int:
    failures = own_failures(pods)
    if failures > restarts:
        return restarts  # below the number of failed pods, so the Job ends
    taken = max(0, job.failed - failures)
    return restarts + taken + spare
