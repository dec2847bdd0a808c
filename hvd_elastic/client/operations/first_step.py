"""Waiting until a submitted job trains: what it waits for meanwhile, as a value."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    ForbiddenError,
    Json,
    NotFoundError,
    Read,
)
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob
from hvd_elastic.client.report.job_facts import JobFactReader, events_of, nodes_with_taints
from hvd_elastic.client.report.job_state import exit_words, last_failed_launcher
from hvd_elastic.client.report.words.cause_words import lacks_taints, with_taints
from hvd_elastic.client.report.words.start_words import start_words
from hvd_elastic.discovery.ledger.launcher_view import LauncherView
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.rules.cluster_views import unix_seconds
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS, LABEL_JOB_NAME, LABEL_JOB_ROLE, Exit, Role
from hvd_elastic.system.plain_words import cut_middle, printable

POLL_SECONDS: Final = 1.0
_LONGEST: Final = 120
"""Characters of a reason that are shown."""
_LONGEST_LINE: Final = 400
"""The same of a script's last line."""
_ERRORS: Final = range(1, 128)
"""Exit codes that are no signal's."""
_SHORTAGES: Final = frozenset({Exit.MIN_WORKERS_TIMEOUT, Exit.ALL_WORKERS_LOST, Exit.HOST_CHANGE})
"""Of these, those of a launcher that had no workers: the next one may have some."""


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
    has_run: bool = False
    """Whether it has done a step or, with a script that tells none, has come into `elastic.run`."""
    has_erred: bool = False
    """Whether a launcher has failed by what the next one would meet as well: the script, or the command."""
    suspended: bool = False
    ended: str = ""
    held_up: str = ""
    """Why a pod does not run, in its own words: `POD: REASON`."""

    def __str__(self) -> str:
        """One line for people."""
        if self.ended:
            return f"has {self.ended}"
        if self.has_run:
            return f"trains, step {self.step}" if self.step >= 0 else "trains"
        if self.suspended:
            return "is suspended"
        waits = f"{self.running} of {self.workers} workers run, launcher {self.launcher.lower() or 'to come'}"
        return f"{waits}; {self.held_up}" if self.held_up else waits


def progress_of(
    job: Mapping[str, Any], pods: Iterable[Json], nodes: Iterable[Json] = (), events: Iterable[Json] = ()
) -> StartProgress:
    """Judge an MPIJob and its pods, as the API server sends them.

    Args:
        job: the MPIJob.
        pods: its pods.
        nodes: those whose taints are to be named.
        events: those of its pods.
    """
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
        has_run=step >= 0 or (status is not None and status.has_run),
        has_erred=any(_has_erred(pod) for pod in launchers if _created(pod) >= _created(job)),
        suspended=view.suspended,
        ended=view.ended,
        held_up=next(filter(None, (_held_up(pod, nodes, events) for pod in (*launchers, *workers))), ""),
    )


def wait_for_first_step(
    cluster: ClusterClient, name: str, *, report: Callable[[StartProgress], None], sleep: Callable[[float], None]
) -> StartProgress:
    """Look once a second until the job has done a step, or has succeeded. `report` hears of each change.

    A script that tells no steps needs only to come into `elastic.run`.

    Raises JobFailedError if the job, or its first launcher, fails before, or the job is deleted; JobStateError if it is
    suspended; other ClusterErrors that do not pass by themselves.
    """
    wait = LongWait(sleep=sleep)
    told: StartProgress | None = None
    nodes: tuple[Json, ...] | None = None
    while True:
        job, pods = wait.look(partial(_look, cluster, name))
        if nodes is None and any(map(lacks_taints, pods)):
            nodes = wait.look(partial(nodes_with_taints, cluster, pods))
        progress = progress_of(job, pods, nodes or (), wait.look(partial(_events, cluster, pods)))
        if progress != told:
            report(progress)
            told = progress
        if progress.ended == "failed" or (progress.has_erred and not progress.has_run):
            raise JobFailedError(wait.look(partial(_failure, cluster, name, progress)))
        if progress.has_run or progress.ended:
            return progress
        if progress.suspended:
            raise JobStateError(f"{name} is suspended, so no step comes: hvd-elastic resume {name}")
        sleep(POLL_SECONDS)


def _look(cluster: ClusterClient, name: str) -> tuple[Json, list[Json]]:
    """The job and its pods."""
    pods_path, selector = f"/api/v1/namespaces/{cluster.namespace}/pods", {"labelSelector": f"{LABEL_JOB_NAME}={name}"}
    job, pods = cluster.gather([Read(path=mpijob_path(cluster.namespace, name)), Read(path=pods_path, query=selector)])
    if isinstance(job, NotFoundError):
        raise JobFailedError(f"{name} was deleted before its first step")
    return _object(job), _object(pods)["items"]


def _events(cluster: ClusterClient, pods: Iterable[Json]) -> tuple[Json, ...]:
    with contextlib.suppress(ForbiddenError):
        return events_of(cluster, f"/namespaces/{cluster.namespace}", pods)
    return ()


def _failure(cluster: ClusterClient, name: str, progress: StartProgress) -> str:
    """Which launcher has failed, with the last line that it knows of its script."""
    facts = JobFactReader(cluster).read(name, cluster.namespace)
    seen = map(LauncherView.from_json, facts.pods_of(Role.LAUNCHER))
    last = last_failed_launcher(facts) or next((end for end in seen if end.exit_code), None)
    who = name if progress.ended else f"a launcher of {name}"
    when = "" if progress.has_run else " before the first step"
    how = f" with {exit_words(last.exit_code, printable(last.reason[:_LONGEST_LINE]))}" if last else ""
    follows = "" if progress.ended else f"; another one tries the same, unless you hvd-elastic delete {name}"
    return f"{who} has failed{when}{how}\nhvd-elastic logs {name} tells more{follows}"


def _created(thing: Mapping[str, Any]) -> float:
    """A launcher that is older than the job was that of a job of the same name, which is deleted."""
    return unix_seconds(thing["metadata"].get("creationTimestamp"))


def _has_erred(launcher: Mapping[str, Any]) -> bool:
    """Its sidecar has ended, too: what it knows of the end is written."""
    if _phase(launcher) != "Failed":
        return False
    code = LauncherView.from_json(launcher).exit_code
    return code is not None and code in _ERRORS and code not in _SHORTAGES


def _object(answer: Json | ClusterError) -> Json:
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _role(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(LABEL_JOB_ROLE, ""))


def _phase(pod: Mapping[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _held_up(pod: Json, nodes: Iterable[Json], events: Iterable[Json]) -> str:
    """What the scheduler or the kubelet says of a pod that does not run yet; empty if it says nothing."""
    status = pod.get("status", {})
    if status.get("phase") != "Pending":
        return ""
    said = [
        one.get("message") or one.get("reason", "")
        for one in status.get("conditions") or ()
        if one["type"] == "PodScheduled" and one["status"] == "False"
    ]
    why = said[0] if said else start_words(pod, events)
    words = cut_middle(" ".join(why.split()), _LONGEST)
    return f"{pod['metadata']['name']}: {with_taints(words, pod, nodes)}" if words else ""
