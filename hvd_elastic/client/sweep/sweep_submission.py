"""Submitting a sweep: checked whole, then written so that it can be cut short anywhere and gone on with.

SweepPlan ──► dry run of all ──► record ──► jobs (those beyond the cap suspended, each with its turn) ──► runner
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ForbiddenError, Json, NotFoundError
from hvd_elastic.client.operations.prerequisites import NotReadyError
from hvd_elastic.client.operations.resource_paths import mpijob_path, object_path
from hvd_elastic.client.operations.submission import FIELD_MANAGER, NotAppliedError, submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.client.sweep.runner_manifests import runner_job, runner_rights
from hvd_elastic.client.sweep.sweep_plan import PlannedJob, SweepPlan
from hvd_elastic.client.sweep.sweep_record import (
    SweepDiffersError,
    SweepRecord,
    UnknownSweepError,
    differences,
    find_record,
)
from hvd_elastic.client.sweep.turns import SweepJob
from hvd_elastic.mpijob.contract import ANNOTATION_TURN, LABEL_SWEEP
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render

TURN_MANAGER: Final = "hvd-elastic-sweep"
"""Another field manager than that of `submit`, which must not take a job's turn away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSubmission:
    """What was done, or with a dry run would be done."""

    plan: SweepPlan
    created: frozenset[str]
    """Names of the jobs that were not there."""


def submit_sweep(cluster: ClusterClient, plan: SweepPlan, *, dry_run: bool = False) -> SweepSubmission:
    """Submit the jobs of a sweep that are not there, with its runner. `cluster` is in the sweep's namespace.

    Raises SweepDiffersError if there is another sweep of this name; what `submission.submit` raises, for each job that
    the cluster would refuse; other ClusterErrors.
    """
    wanted = SweepRecord.of(plan)
    known = _known(cluster, plan.name)
    if known is not None and (changes := list(differences(known, wanted))):
        raise SweepDiffersError(
            f"the sweep {plan.name} is there and differs:\n  " + "\n  ".join(changes) + "\n"
            f"give this one another --name, or `hvd-elastic sweep delete {plan.name}`"
        )
    if known is not None and known.complete:
        return SweepSubmission(plan=plan, created=frozenset())
    there = sweep_mpijobs(cluster, plan.name)
    new = [job for job in plan.jobs if job.spec.name not in there]
    _rehearse(cluster, new)
    if not dry_run:
        _write(cluster, plan, wanted, new)
    return SweepSubmission(plan=plan, created=frozenset(job.spec.name for job in new))


def manifests(plan: SweepPlan) -> Sequence[Json]:
    """Everything that is written, for people: the UIDs of owners are known only in a cluster."""
    record = SweepRecord.of(plan)
    jobs = [manifest for job in plan.jobs for manifest in render(job.spec)]
    if not plan.needs_runner:
        return [record.manifest(plan.base.namespace), *jobs]
    rights = runner_rights(plan.base, record, owner="")
    runner = runner_job(plan.base, record, owner="", suspend=False)
    for one in (*rights, runner):
        one["metadata"].pop("ownerReferences", None)
    return [record.manifest(plan.base.namespace), *jobs, *rights, runner]


def sweep_mpijobs(cluster: ClusterClient, sweep: str) -> Mapping[str, Json]:
    """The MPIJobs of a sweep by name."""
    found = cluster.list(mpijob_path(cluster.namespace), labelSelector=f"{LABEL_SWEEP}={sweep}")
    return {job["metadata"]["name"]: job for job in found}


def start_runner(cluster: ClusterClient, record: SweepRecord) -> None:
    """Make the runner, or go on with one that is suspended. `record` is the live one, with its UID."""
    base = base_of(record, cluster.namespace)
    job = runner_job(base, record, owner=record.uid, suspend=True)
    try:
        uid = cluster.get(object_path(job))["metadata"].get("uid", "")
    except NotFoundError:
        uid = _apply(cluster, job)["metadata"].get("uid", "")
    for manifest in runner_rights(base, record, owner=uid):
        _apply(cluster, manifest)
    _apply(cluster, runner_job(base, record, owner=record.uid, suspend=False))


def base_of(record: SweepRecord, namespace: str) -> JobSpec:
    """The job description of a sweep that was submitted. Raises InvalidInputError for one of another release."""
    return read_job(None, record.description, defaults={"namespace": namespace})


def give_turn(cluster: ClusterClient, job: Json, turn: int) -> None:
    """Suspend a job until its runner resumes it. The UID is a precondition."""
    meta = job["metadata"]
    change = {
        "metadata": {"uid": meta.get("uid", ""), "annotations": {ANNOTATION_TURN: str(turn)}},
        "spec": {"runPolicy": {"suspend": True}},
    }
    cluster.patch(mpijob_path(cluster.namespace, meta["name"]), change, fieldManager=TURN_MANAGER)


def _known(cluster: ClusterClient, name: str) -> SweepRecord | None:
    try:
        return find_record(cluster, name)
    except UnknownSweepError:
        return None


def _rehearse(cluster: ClusterClient, jobs: Sequence[PlannedJob]) -> None:
    """Ask whether the cluster would accept all jobs. Raises NotAppliedError with every refusal, each told once."""
    refusals: dict[str, None] = {}
    for job in jobs:
        try:
            submit(cluster, job.spec, dry_run=True)
        except (NotReadyError, ForbiddenError):
            raise  # the same for each of them
        except (NotAppliedError, JobStateError) as error:
            refusals[str(error)] = None
    if refusals:
        raise NotAppliedError("\n".join(refusals))


def _write(cluster: ClusterClient, plan: SweepPlan, wanted: SweepRecord, new: Sequence[PlannedJob]) -> None:
    live = _apply(cluster, wanted.manifest(cluster.namespace))
    for job in new:
        submit(cluster, job.spec)
    there = sweep_mpijobs(cluster, plan.name)
    for place, job in enumerate(plan.jobs):
        # One that runs although it is beyond the cap has had its turn: the last submission was cut short late.
        if plan.waits(place) and (made := there.get(job.spec.name)) and SweepJob.from_json(made).suspended:
            give_turn(cluster, made, place)
    record = replace(wanted, uid=live["metadata"].get("uid", ""))
    if record.needs_runner:
        start_runner(cluster, record)
    _apply(cluster, replace(record, complete=True).manifest(cluster.namespace))


def _apply(cluster: ClusterClient, manifest: Json) -> Json:
    return cluster.apply(object_path(manifest), manifest, manager=FIELD_MANAGER, force=True)
