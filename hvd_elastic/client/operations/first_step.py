"""Waiting until a submitted job trains: what it waits for meanwhile, as a value."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, Json, NotFoundError, Read
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS, LABEL_JOB_NAME, LABEL_JOB_ROLE, Exit, Role
from hvd_elastic.system.plain_words import cut_middle

POLL_SECONDS: Final = 1.0
_LONGEST: Final = 120
"""Characters of a reason that are shown."""


class JobFailedError(ClusterError):
    """The job has failed, or was deleted, before what was waited for."""

    exit_code = Exit.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """How far a job is on its way to its first step."""

    running: int
    """Worker pods that run."""
    workers: int
    """Worker pods that are there."""
    launcher: str
    """Phase of the launcher's pod; empty: there is none."""
    step: int = -1
    """The last step; -1: none yet."""
    has_begun: bool = False
    suspended: bool = False
    ended: str = ""
    held_up: str = ""
    """Why a pod does not run, in its own words: `POD: REASON`."""

    def __str__(self) -> str:
        """One line for people."""
        if self.ended:
            return f"has {self.ended}"
        if self.has_begun:
            return f"trains, step {self.step}" if self.step >= 0 else "trains"
        if self.suspended:
            return "is suspended"
        waits = f"{self.running} of {self.workers} workers run, launcher {self.launcher.lower() or 'to come'}"
        return f"{waits}; {self.held_up}" if self.held_up else waits


def progress_of(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> StartProgress:
    """Judge an MPIJob and its pods, as the API server sends them."""
    pods, view = list(pods), SubmittedJob.from_json(job)
    workers = [pod for pod in pods if _role(pod) == Role.WORKER]
    launchers = [pod for pod in pods if _role(pod) == Role.LAUNCHER]
    status = LiveStatus.from_json((job["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS, ""))
    step = status.step if status else -1
    return StartProgress(
        running=sum(_phase(pod) == "Running" for pod in workers),
        workers=len(workers),
        launcher=_phase(launchers[-1]) if launchers else "",
        step=step,
        has_begun=view.has_begun or step >= 0,
        suspended=view.suspended,
        ended=view.ended,
        held_up=next(filter(None, map(_held_up, [*launchers, *workers])), ""),
    )


def wait_for_first_step(
    cluster: ClusterClient, name: str, *, report: Callable[[StartProgress], None], sleep: Callable[[float], None]
) -> StartProgress:
    """Look once a second until the job has done a step, or has succeeded. `report` hears of each change.

    Raises JobFailedError if the job fails or is deleted before, JobStateError if it is suspended; other ClusterErrors.
    """
    told: StartProgress | None = None
    while True:
        progress = _look(cluster, name)
        if progress != told:
            report(progress)
            told = progress
        if progress.ended == "failed":
            raise JobFailedError(f"{name} has failed before its first step: hvd-elastic logs {name}")
        if progress.has_begun or progress.ended:
            return progress
        if progress.suspended:
            raise JobStateError(f"{name} is suspended, so no step comes: hvd-elastic resume {name}")
        sleep(POLL_SECONDS)


def _look(cluster: ClusterClient, name: str) -> StartProgress:
    pods_path, selector = f"/api/v1/namespaces/{cluster.namespace}/pods", {"labelSelector": f"{LABEL_JOB_NAME}={name}"}
    job, pods = cluster.gather([Read(path=mpijob_path(cluster.namespace, name)), Read(path=pods_path, query=selector)])
    if isinstance(job, NotFoundError):
        raise JobFailedError(f"{name} was deleted before its first step")
    return progress_of(_object(job), _object(pods)["items"])


def _object(answer: Json | ClusterError) -> Json:
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _role(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_JOB_ROLE, ""))


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _held_up(pod: Mapping[str, Any]) -> str:
    """What the scheduler or the kubelet says of a pod that does not run yet; empty if it says nothing."""
    status = pod.get("status", {})
    if status.get("phase") != "Pending":
        return ""
    said = [
        one.get("message") or one.get("reason", "")
        for one in status.get("conditions") or ()
        if one["type"] == "PodScheduled" and one["status"] == "False"
    ]
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            said.append(f"{waiting['reason']} {waiting.get('message', '')}".strip())
    return f"{pod['metadata']['name']}: {cut_middle(' '.join(said[0].split()), _LONGEST)}" if said else ""
