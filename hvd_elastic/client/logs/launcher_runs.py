"""The runs of a job's launcher: each pod that its Job has made, and each container of a pod that was started again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.mpijob.contract import LABEL_JOB_ROLE, LABEL_REPLICA_TYPE, Role

_CONTAINER: Final = "launcher"
_ENDED_PHASES: Final = frozenset({"Failed", "Succeeded"})


class RunState(StrEnum):
    """Whether a run can be read, and whether more is to come."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherRun:
    """One run of the launcher's container."""

    pod: str
    uid: str
    container: str
    number: int
    """How often the container had been started again in its pod; 0 unless the job restarts it there."""
    is_previous: bool
    """Whether the API server shows its log as that of the container's `previous` run."""
    state: RunState
    reason: str = ""
    """Why it waits, or how it has ended."""
    exit_code: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Its identity, whatever becomes of its state."""
        return self.uid, self.number

    @property
    def outcome(self) -> str:
        """How it has ended, in words."""
        reason = f" ({self.reason})" if self.reason not in {"", "Completed", "Error"} else ""
        return "is gone" if self.exit_code is None else f"ended with exit code {self.exit_code}{reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunchers:
    """A job as the reader of its log sees it."""

    job: str
    runs: Sequence[LauncherRun] = ()
    """The oldest first."""
    ended: str = ""
    """How the job has ended, in words; empty while it goes on."""
    is_suspended: bool = False

    @property
    def readable(self) -> Sequence[LauncherRun]:
        """The runs that have a log."""
        return [run for run in self.runs if run.state is not RunState.WAITING]

    def find(self, key: tuple[str, int]) -> LauncherRun | None:
        """The run as it is now; None if its log cannot be read any more."""
        return next((run for run in self.readable if run.key == key), None)

    def upto(self, chosen: LauncherRun) -> frozenset[tuple[str, int]]:
        """The keys of this run and of all before it."""
        keys = [run.key for run in self.runs]
        return frozenset(keys[: keys.index(chosen.key) + 1])

    @property
    def waits_for(self) -> str:
        """Why there is nothing to read, in words."""
        if self.is_suspended:
            return "the job is suspended"
        waiting = [run for run in self.runs if run.state is RunState.WAITING]
        return f"launcher {waiting[-1].pod} waits: {waiting[-1].reason}" if waiting else "no launcher is there"


def job_launchers(mpijob: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> JobLaunchers:
    """The launchers of an MPIJob among the pods that have its name; those of an earlier job of this name are left out.

    Only `completionTime` says that a job has ended: both operators also set `Failed` on jobs that go on after a worker
    was evicted (`updateMPIJobStatus` in mpi-operator 0.8).
    """
    status = mpijob.get("status") or {}
    born = mpijob["metadata"]["creationTimestamp"]
    launchers = [pod for pod in pods if _is_launcher(pod) and pod["metadata"]["creationTimestamp"] >= born]
    launchers.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    run_policy = mpijob["spec"].get("runPolicy") or {}
    return JobLaunchers(
        job=mpijob["metadata"]["name"],
        runs=[run for pod in launchers for run in _runs_of(pod)],
        ended=_ending(mpijob) if status.get("completionTime") else "",
        is_suspended=bool(run_policy.get("suspend")),
    )


def _ending(mpijob: Mapping[str, Any]) -> str:
    return "has succeeded" if true_condition(mpijob, "Succeeded") else "has failed"


def _is_launcher(pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return Role.LAUNCHER in {labels.get(LABEL_JOB_ROLE), labels.get(LABEL_REPLICA_TYPE)}


def _runs_of(pod: Mapping[str, Any]) -> Iterator[LauncherRun]:
    """Of a container the API server has the log of the present run and of the one before it."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    name = _CONTAINER if _CONTAINER in names else names[0]
    phase = pod["status"].get("phase", "")
    statuses = pod["status"].get("containerStatuses") or ()
    status: Mapping[str, Any] = next((status for status in statuses if status["name"] == name), {})
    state, last, restarts = status.get("state") or {}, status.get("lastState") or {}, status.get("restartCount", 0)
    before = last.get("terminated")
    if "running" in state or "terminated" in state:
        if before:
            yield _run(pod, name, restarts - 1, ended=before, is_previous=True)
        yield _run(pod, name, restarts, ended=state.get("terminated"))
    elif before:
        # Until it runs again, the log of its last run is shown as the present one.
        yield _run(pod, name, restarts, ended=before)
    elif phase not in _ENDED_PHASES:
        yield _run(pod, name, restarts, waits=_waits_for(pod, state))


def _run(
    pod: Mapping[str, Any],
    container: str,
    number: int,
    *,
    ended: Mapping[str, Any] | None = None,
    waits: str = "",
    is_previous: bool = False,
) -> LauncherRun:
    return LauncherRun(
        pod=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        container=container,
        number=number,
        is_previous=is_previous,
        state=RunState.WAITING if waits else RunState.ENDED if ended else RunState.RUNNING,
        reason=waits or (ended or {}).get("reason", ""),
        exit_code=(ended or {}).get("exitCode"),
    )


def _waits_for(pod: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or scheduled.get("reason") or "it has no node")
    return str((state.get("waiting") or {}).get("reason") or "it has not started")
