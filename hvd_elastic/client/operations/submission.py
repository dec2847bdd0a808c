"""Writing a job into a cluster by server-side apply, after a rehearsal: nothing is written unless all is accepted.

JobSpec ──render──► manifests ──(what the live job decides)──► dry run of all ──► delete ──► apply, in render's order
──► the MPIJob, which has a UID by now, owns its Role and RoleBinding
"""

import contextlib
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    ConflictError,
    ForbiddenError,
    Json,
    NotFoundError,
    Read,
    RefusedError,
)
from hvd_elastic.client.job_lookup import foreign, is_ours
from hvd_elastic.client.operations.manifest_diff import content, unified_diff
from hvd_elastic.client.operations.prerequisites import NotReadyError, Prerequisites, floor_refusal
from hvd_elastic.client.operations.resource_paths import object_path
from hvd_elastic.client.operations.stage_change import copies_read, plan_stage_change
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob
from hvd_elastic.discovery.kube.node_exclusion import excluded_nodes, excluding
from hvd_elastic.mpijob.contract import ANNOTATION_WANTED_WORKERS, Exit
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting import ownership
from hvd_elastic.system.untrusted_values import decimal_count

FIELD_MANAGER: Final = "hvd-elastic"
_OWNER: Final = re.compile(r'conflict with "(?P<manager>[^"]+)"')
"""How the API server names another manager (`NewConflictError` in apimachinery's structured-merge-diff)."""
_ROLES: Final = {"RoleBinding": "Role", "ClusterRoleBinding": "ClusterRole"}


class NotAppliedError(ClusterError):
    """The API server would refuse some of the objects. Nothing was written."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedObject:
    """One object before and after it was applied."""

    before: Json | None
    """None: it did not exist."""
    after: Json

    @property
    def name(self) -> str:
        """`KIND/NAME`, in lower case."""
        return f"{self.after['kind'].lower()}/{self.after['metadata']['name']}"

    @property
    def change(self) -> str:
        """`created`, `configured` or `unchanged`."""
        if self.before is None:
            return "created"
        return "unchanged" if content(self.before) == content(self.after) else "configured"

    @property
    def diff(self) -> str:
        """What changes; empty if nothing does."""
        return unified_diff(self.name, self.before, self.after) if self.change != "unchanged" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedObject:
    """One object that no longer belongs to the job."""

    before: Json

    @property
    def name(self) -> str:
        """`KIND/NAME`, in lower case."""
        return f"{self.before['kind'].lower()}/{self.before['metadata']['name']}"

    @property
    def change(self) -> str:
        """`deleted`."""
        return "deleted"

    @property
    def diff(self) -> str:
        """All of it."""
        return unified_diff(self.name, self.before, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job that was applied, or that was only rehearsed."""

    name: str
    namespace: str
    objects: Sequence[AppliedObject]
    deleted: Sequence[DeletedObject] = ()
    """Copies of the data set for an older description."""

    @property
    def changes(self) -> Sequence[AppliedObject | DeletedObject]:
        """Everything, in the order in which it is done."""
        return [*self.deleted, *self.objects]

    @property
    def started_before(self) -> bool:
        """Whether a launcher of this job was there before: what has changed counts for pods to come."""
        job = self.objects[-1].before
        return job is not None and SubmittedJob.from_json(job).has_launched


def submit(
    cluster: ClusterClient,
    spec: JobSpec,
    *,
    beside: Sequence[Json] = (),
    force: bool = False,
    dry_run: bool = False,
) -> Submission:
    """Apply a job with everything beside it, or with `dry_run` only rehearse that.

    `beside`: objects of somebody's own, of kinds in `resource_paths.PLURALS`, that are applied first and are not the
    job's. `force` takes over fields that another manager has set.

    Raises InvalidInputError for a job that cannot be written as an MPIJob; NotReadyError, ForeignJobError,
    JobStateError and NotAppliedError before anything is written; other ClusterErrors.
    """
    manifests = [*beside, *render(spec)]
    live, copies = _look(cluster, spec, manifests)
    is_new = live[object_path(manifests[-1])] is None
    if spec.workers.floor and is_new and (refused := floor_refusal(cluster, spec, manifests[-1])):
        raise NotReadyError(refused)
    stage = plan_stage_change(spec, live, copies, live[object_path(manifests[-1])])
    applied = [one for one in manifests if object_path(one) not in stage.skipped]
    planned = [with_live_decisions(one, live[object_path(one)], spec) for one in applied]
    rehearsed = _rehearse(cluster, planned, live, force=force)
    for one in stage.outdated:
        _delete(cluster, one, dry_run=True)
    if not dry_run:
        for one in stage.outdated:
            _delete(cluster, one)
        rehearsed = [_apply(cluster, one, force=force) for one in planned]
        _own_rights(cluster, rehearsed[len(beside) :])
    objects = [
        AppliedObject(before=live[object_path(one)], after=after) for one, after in zip(planned, rehearsed, strict=True)
    ]
    deleted = [DeletedObject(before=one) for one in stage.outdated]
    return Submission(name=spec.name, namespace=spec.namespace, objects=objects, deleted=deleted)


def with_live_decisions(manifest: Json, live: Json | None, spec: JobSpec) -> Json:
    """An MPIJob with what was decided since it was created: its size if it was scaled, whether it is suspended, and the
    nodes that its workers keep off.

    Raises JobStateError if the size no longer fits the job.
    """
    if live is None or manifest["kind"] != "MPIJob":
        return manifest
    made, job = copy.deepcopy(manifest), SubmittedJob.from_json(live)
    made["spec"]["runPolicy"].pop("suspend", None)
    if "suspend" in (live["spec"].get("runPolicy") or {}):
        made["spec"]["runPolicy"]["suspend"] = job.suspended
    if nodes := excluded_nodes(live):
        pod = made["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
        pod["affinity"] = excluding(pod.get("affinity") or {}, nodes)
    if job.wanted:
        wanted = decimal_count(job.wanted)
        if wanted is None or not spec.workers.allows(wanted):
            raise JobStateError(
                f"{job.name} was scaled to {job.wanted} workers, which is not within the new description's "
                f"{spec.workers.size_words}: scale it to what both allow, or forget its size: kubectl "
                f"annotate mpijob {job.name} -n {job.namespace} {ANNOTATION_WANTED_WORKERS}-"
            )
        made["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = job.replicas
    return made


def _look(
    cluster: ClusterClient, spec: JobSpec, manifests: Sequence[Json]
) -> tuple[Mapping[str, Json | None], Sequence[Json]]:
    """The live objects by path, and the Jobs that copy the job's data set. One round trip.

    Raises what says that the job may not be written.
    """
    needed, paths = Prerequisites.of(spec), [object_path(manifest) for manifest in manifests]
    copies = copies_read(spec)
    reads = [*needed.reads(), *(Read(path=path) for path in paths), *copies]
    answers = {read.path: answer for read, answer in zip(reads, cluster.gather(reads), strict=True)}
    if lacking := list(needed.lacking(answers)):
        raise NotReadyError("\n".join(lacking))
    asked = [*paths, *(read.path for read in copies)]
    _raise_forbidden(str(answers[path]) for path in asked if isinstance(answers[path], ForbiddenError))
    live = {path: _live(answers[path]) for path in paths}
    if (job := live[paths[-1]]) is not None:
        if not is_ours(job):
            raise foreign(job)
        _check_live(SubmittedJob.from_json(job))
    return live, [one for read in copies if (found := _live(answers[read.path])) for one in found["items"]]


def _live(answer: Json | ClusterError) -> Json | None:
    if isinstance(answer, NotFoundError):
        return None
    if isinstance(answer, ClusterError):
        raise answer
    return answer


def _check_live(job: SubmittedJob) -> None:
    if job.is_deleted:
        raise JobStateError(f"{job.name} is being deleted: submit it when it is gone")
    if job.ended:
        raise JobStateError(
            f"{job.name} has {job.ended}: `hvd-elastic restart {job.name}` begins it again from its last checkpoint, "
            f"`hvd-elastic delete {job.name}` makes room for another"
        )


def _rehearse(
    cluster: ClusterClient, planned: Sequence[Json], live: Mapping[str, Json | None], *, force: bool
) -> list[Json]:
    """What the objects would be. Raises NotAppliedError with every refusal, ForbiddenError if there are no others."""
    new = {(one["kind"], one["metadata"]["name"]) for one in planned if live[object_path(one)] is None}
    after, refusals, forbidden = list[Json](), list[str](), list[str]()
    for manifest in planned:
        # Who may not grant every right must bind a role that is there already, and in a rehearsal a new one is not.
        role = (_ROLES.get(manifest["kind"]), manifest.get("roleRef", {}).get("name"))
        try:
            after.append(manifest if role in new else _apply(cluster, manifest, force=force, dry_run=True))
        except RefusedError as error:
            if error.is_passing:
                raise
            refusals += refusal(manifest, error)
        except ForbiddenError as error:
            forbidden.append(str(error))
    if refusals:
        raise NotAppliedError("\n".join([*refusals, *forbidden]))
    _raise_forbidden(forbidden)
    return after


def _raise_forbidden(said: Iterable[str]) -> None:
    if lines := list(said):
        raise ForbiddenError("\n".join(lines))


def _apply(cluster: ClusterClient, manifest: Json, *, force: bool, dry_run: bool = False) -> Json:
    applied = cluster.apply(object_path(manifest), manifest, manager=FIELD_MANAGER, force=force, dry_run=dry_run)
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], **applied}


def _own_rights(cluster: ClusterClient, applied: Sequence[Json]) -> None:
    """Have Role and RoleBinding go with the MPIJob, the last of what was applied. Its sidecar has no right to do it.

    Where only those may set an owner who may delete the object (OwnerReferencesPermissionEnforcement), they may stay:
    `delete` finds them by their labels.
    """
    job = applied[-1]
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {key: job["metadata"][key] for key in ("name", "uid")}
    for one in applied:
        owners = one["metadata"].get("ownerReferences") or []
        if one["kind"] in ownership.RIGHTS and owner not in owners:
            # A stranger's reference stays; one to an earlier job of this name would have the rights deleted.
            others = [each for each in owners if (each["kind"], each["name"]) != (owner["kind"], owner["name"])]
            change = {"uid": one["metadata"]["uid"], "ownerReferences": [*others, owner]}
            with contextlib.suppress(ForbiddenError):
                cluster.patch(object_path(one), {"metadata": change}, fieldManager=FIELD_MANAGER)


def _delete(cluster: ClusterClient, one: Json, *, dry_run: bool = False) -> None:
    """Delete an object with what it owns. One that is gone is no error."""
    with contextlib.suppress(NotFoundError):
        cluster.delete(object_path(one), uid=one["metadata"]["uid"], propagation="Background", dry_run=dry_run)


def refusal(manifest: Mapping[str, Any], error: RefusedError) -> Iterator[str]:
    """Why an object was refused: a sentence for each manager that owns its fields, or for each field that is wrong."""
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    if isinstance(error, ConflictError) and error.causes:
        fields: dict[str, list[str]] = {}
        for cause in error.causes:
            owner = _OWNER.search(cause.message)
            fields.setdefault(owner["manager"] if owner else cause.message, []).append(cause.field)
        for manager, owned in fields.items():
            are, them = ("are", "them") if len(owned) > 1 else ("is", "it")
            yield f"{name}: {', '.join(owned)} {are} {manager}'s: --force-conflicts takes {them} over"
        return
    if not error.causes:
        yield f"{name}: {error}"
    for cause in error.causes:
        fixed = "immutable" in cause.message or "forbidden" in cause.message.lower()
        way_out = ": it cannot be changed while the object exists; delete the object, or keep the old value"
        said, _, _ = cause.message.partition("\n")  # what follows is a diff of Go's values
        yield f"{name}: {cause.field}: {said}{way_out if fixed else ''}"
