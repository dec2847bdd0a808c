"""Stopping, resuming and deleting a sweep as a whole."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json, NotFoundError
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.job_lookup import UnknownJobError
from hvd_elastic.client.operations import deletion
from hvd_elastic.client.operations.deletion import DeletionPlan
from hvd_elastic.client.operations.resource_paths import collection_path, mpijob_path
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.client.sweep.runner_manifests import GRACE_SECONDS
from hvd_elastic.client.sweep.sweep_record import SUFFIX, SweepRecord, find_record, labels
from hvd_elastic.client.sweep.sweep_submission import TURN_MANAGER, give_turn, start_runner, sweep_mpijobs
from hvd_elastic.client.sweep.turns import SweepJob
from hvd_elastic.mpijob.contract import LABEL_PART_OF

_POLL_SECONDS: Final = 0.25
_POLLS: Final = int(2 * GRACE_SECONDS / _POLL_SECONDS)
"""Of the runner's pod. One that is there after twice its grace is on a node that is lost."""

Sleep = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChange:
    """What was done to a sweep."""

    changed: Sequence[str]
    """Names of the jobs that were suspended or resumed."""
    runner: bool
    """Whether its runner gives turns from now on."""
    durable: bool
    """Whether the jobs have checkpoints from which they go on."""


def stop_sweep(cluster: ClusterClient, name: str, *, sleep: Sleep) -> SweepChange:
    """Suspend the runner, and then all jobs that have not ended.

    Raises JobStateError if Kueue decides; UnknownSweepError; other ClusterErrors.
    """
    record = _own_record(cluster, name)
    _stop_runner(cluster, record, sleep)
    stopped = []
    for turn, job in _unended(cluster, record):
        if not job["spec"].get("runPolicy", {}).get("suspend"):
            _suspend(cluster, record, job, turn)
            stopped.append(job["metadata"]["name"])
    return SweepChange(changed=stopped, runner=False, durable="checkpoint" in record.description)


def resume_sweep(cluster: ClusterClient, name: str) -> SweepChange:
    """Let a sweep go on: its runner gives turns again; without one all suspended jobs are resumed.

    Raises what `stop_sweep` raises.
    """
    record = _own_record(cluster, name)
    unended = _unended(cluster, record)
    if record.needs_runner and unended:
        start_runner(cluster, record)
        return SweepChange(changed=(), runner=True, durable="checkpoint" in record.description)
    suspended = [job for _, job in unended if SweepJob.from_json(job).suspended]
    for job in suspended:
        change = {"metadata": {"uid": job["metadata"].get("uid", "")}, "spec": {"runPolicy": {"suspend": False}}}
        _patch(cluster, job, change)
    names = [job["metadata"]["name"] for job in suspended]
    return SweepChange(changed=names, runner=False, durable="checkpoint" in record.description)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDeletion:
    """What a deletion would take along."""

    record: SweepRecord
    jobs: Sequence[DeletionPlan]


def plan_sweep_deletion(cluster: ClusterClient, name: str) -> SweepDeletion:
    """Look what belongs to a sweep. Raises UnknownSweepError; other ClusterErrors."""
    record = find_record(cluster, name)
    plans: list[DeletionPlan] = []
    for job in record.jobs:
        try:
            plans.append(deletion.plan_deletion(cluster, job.name))
        except UnknownJobError:
            continue  # its time was over, or somebody has deleted it
    return SweepDeletion(record=record, jobs=plans)


def delete_sweep(
    cluster: ClusterClient, plan: SweepDeletion, *, volumes: bool, sleep: Sleep, report: Callable[[str], None]
) -> None:
    """Delete the runner, all jobs at the same time, and at last the record. `report` hears the name of what went.

    Whoever is interrupted can begin again, because the record goes last. Raises ClusterError.
    """
    name, wait = f"{plan.record.name}{SUFFIX}", LongWait(sleep=sleep)
    if wait.look(lambda: _remove(cluster, _runner_path(cluster, plan.record))):
        report(f"job/{name}")
    for job in plan.jobs:
        if job.job:
            wait.look(partial(deletion.remove, cluster, job.job, propagation="Foreground"))
    for job in plan.jobs:
        for part in deletion.delete(cluster, job, volumes=volumes, sleep=sleep):
            report(str(part))
    if wait.look(lambda: _remove(cluster, f"{collection_path('v1', 'ConfigMap', cluster.namespace)}/{name}")):
        report(f"configmap/{name}")


def runner_is_suspended(cluster: ClusterClient, record: SweepRecord) -> bool:
    """Whether the sweep was stopped and its jobs wait for no turn."""
    try:
        return bool(cluster.get(_runner_path(cluster, record))["spec"].get("suspend"))
    except NotFoundError:
        return False


def _own_record(cluster: ClusterClient, name: str) -> SweepRecord:
    record = find_record(cluster, name)
    if record.kueue:
        raise JobStateError(
            f"the jobs of {name} are in a queue of Kueue, which alone suspends and resumes them: set the queue's "
            "stopPolicy, or delete the sweep"
        )
    return record


def _unended(cluster: ClusterClient, record: SweepRecord) -> Sequence[tuple[int, Json]]:
    """The jobs that have not ended, with their places."""
    there = sweep_mpijobs(cluster, record.name)
    placed = [(place, there[job.name]) for place, job in enumerate(record.jobs) if job.name in there]
    return [(place, job) for place, job in placed if not SweepJob.from_json(job).ended]


def _suspend(cluster: ClusterClient, record: SweepRecord, job: Json, turn: int) -> None:
    if record.needs_runner:
        give_turn(cluster, job, turn)
    else:
        change = {"metadata": {"uid": job["metadata"].get("uid", "")}, "spec": {"runPolicy": {"suspend": True}}}
        _patch(cluster, job, change)


def _patch(cluster: ClusterClient, job: Json, change: Mapping[str, object]) -> None:
    path = mpijob_path(cluster.namespace, job["metadata"]["name"])
    cluster.patch(path, dict(change), fieldManager=TURN_MANAGER)


def _stop_runner(cluster: ClusterClient, record: SweepRecord, sleep: Sleep) -> None:
    """Suspend the runner's Job and wait until its pod is gone: it must resume nothing that is suspended next."""
    try:
        cluster.patch(_runner_path(cluster, record), {"spec": {"suspend": True}}, fieldManager=TURN_MANAGER)
    except NotFoundError:
        return
    path = collection_path("v1", "Pod", cluster.namespace)
    selector = f"{LABEL_PART_OF}={labels(record.name)[LABEL_PART_OF]}"
    wait = LongWait(sleep=sleep)
    for _ in range(_POLLS):
        pods = wait.look(lambda: list(cluster.list(path, labelSelector=selector)))
        if not any((pod.get("status") or {}).get("phase") in {"Pending", "Running"} for pod in pods):
            return
        sleep(_POLL_SECONDS)


def _runner_path(cluster: ClusterClient, record: SweepRecord) -> str:
    return f"{collection_path('batch/v1', 'Job', cluster.namespace)}/{record.name}{SUFFIX}"


def _remove(cluster: ClusterClient, path: str) -> bool:
    """Whether it was there."""
    try:
        cluster.delete(path, propagation="Background")
    except NotFoundError:
        return False
    return True
