"""TensorBoard for one job, on request: made, found again and removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ClusterError,
    ForbiddenError,
    Json,
    NotFoundError,
    Read,
)
from hvd_elastic.client.job_lookup import find_job
from hvd_elastic.client.operations.deletion import Part, remove
from hvd_elastic.client.operations.resource_paths import object_path
from hvd_elastic.client.operations.submission import FIELD_MANAGER, AppliedObject
from hvd_elastic.client.operations.submitted_job import MPIJOB_API, JobStateError, SubmittedJob, find_submitted
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.mounts import mounts
from hvd_elastic.mpijob.manifests.supporting import bucket_volume, tensorboard

_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_ONE_POD: Final = "ReadWriteOncePod"
"""Access modes of a claim (Kubernetes, "Persistent Volumes", "Access Modes")."""


class ForeignObjectError(ClusterError):
    """There is an object of this name that somebody else made. It is left alone."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoard:
    """The TensorBoard of one job, as it is to be or as it was applied."""

    name: str
    """Of the Deployment."""
    namespace: str
    folder: str
    """What it shows, as its pod sees it."""
    claim: str | None
    """None: a bucket that needs no claim."""
    one_node: bool
    """Whether the claim is mounted on one node at a time."""
    objects: Sequence[AppliedObject]
    """In apply order; the Deployment is the last."""


def plan_tensorboard(cluster: ClusterClient, job: str, *, image: str | None = None) -> TensorBoard:
    """What would show the events of a job; `image` defaults to the job's own. Changes nothing.

    Raises JobStateError if the job has no `output`, or its claim is not there or admits no second pod;
    ForeignObjectError; UnknownJobError; ForeignJobError; other ClusterErrors.
    """
    found = find_submitted(cluster, job)
    spec = found.description.model_copy(update={"namespace": found.namespace})
    if spec.output is None:
        raise JobStateError(
            f"{job} has no output, so it keeps no TensorBoard events: write `output: CLAIM`, or the URL of a bucket, "
            "into its description and submit it anew"
        )
    claim = _output_claim(spec)
    one_node = claim is not None and _is_on_one_node(cluster, spec, claim)
    wanted = tensorboard.manifests(
        spec, image=image or str(spec.image), one_node=one_node, owner=_owner_reference(found)
    )
    live = _live(cluster, [object_path(manifest) for manifest in wanted], job)
    return TensorBoard(
        name=tensorboard.name(job),
        namespace=found.namespace,
        folder=tensorboard.folder(spec),
        claim=claim,
        one_node=one_node,
        objects=[AppliedObject(before=live.get(object_path(manifest)), after=manifest) for manifest in wanted],
    )


def apply_tensorboard(
    cluster: ClusterClient, plan: TensorBoard, *, force: bool = False, dry_run: bool = False
) -> TensorBoard:
    """Apply a plan, or with `dry_run` only have the API server check it. Nothing is written unless it accepts all.

    `force` takes over fields that another manager has set. Raises ClusterError.
    """
    checked = [_apply(cluster, one, force=force, dry_run=True) for one in plan.objects]
    done = checked if dry_run else [_apply(cluster, one, force=force, dry_run=False) for one in plan.objects]
    return replace(plan, objects=done)


def delete_tensorboard(cluster: ClusterClient, job: str, *, dry_run: bool = False) -> Sequence[Json]:
    """Remove the TensorBoard of a job, and nothing else; return what went. Empty: the job has none.

    Raises UnknownJobError if there is neither TensorBoard nor job; ForeignObjectError; other ClusterErrors.
    """
    kinds = (
        ("apps/v1", "Deployment", tensorboard.name(job)),
        ("networking.k8s.io/v1", "NetworkPolicy", tensorboard.policy_name(job)),
    )
    asked = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": cluster.namespace}}
        for version, kind, name in kinds
    ]
    live = _live(cluster, [object_path(one) for one in asked], job)
    there = [{**one, **live[path]} for one in asked if (path := object_path(one)) in live]
    if not there:
        find_job(cluster, job, cluster.namespace)
    for one in there if not dry_run else ():
        meta = one["metadata"]
        remove(cluster, Part(kind=one["kind"], name=meta["name"], path=object_path(one), uid=meta["uid"]))
    return there


def _output_claim(spec: JobSpec) -> str | None:
    output = next(mount for mount in mounts(spec) if not mount.read_only)
    return None if bucket_volume.is_inline(output.bucket) else output.claim(spec)


def _is_on_one_node(cluster: ClusterClient, spec: JobSpec, claim: str) -> bool:
    """Who may not read claims is believed that many nodes may mount this one, as all that the generator makes."""
    try:
        found = cluster.get(f"/api/v1/namespaces/{spec.namespace}/persistentvolumeclaims/{claim}")
    except ForbiddenError:
        return False
    except NotFoundError as error:
        raise JobStateError(
            f"there is no claim {claim} in namespace {spec.namespace}, which {spec.name} has as output: make it, or "
            "submit the job again, which makes a claim that is its own"
        ) from error
    modes = set((found.get("spec") or {}).get("accessModes") or ())
    if _ONE_POD in modes:
        raise JobStateError(
            f"the claim {claim} is {_ONE_POD}: a worker of {spec.name} has it, and no second pod may: read the events "
            f"in {tensorboard.folder(spec)} of that worker, or give the job a ReadWriteMany claim"
        )
    return bool(modes) and not modes & _MANY_NODES


def _owner_reference(job: SubmittedJob) -> Mapping[str, Any]:
    return {"apiVersion": MPIJOB_API, "kind": "MPIJob", "name": job.name, "uid": job.uid}


def _live(cluster: ClusterClient, paths: Sequence[str], job: str) -> Mapping[str, Json]:
    """The objects that are there, by path. Raises ForeignObjectError if one of them is not of this job."""
    found: dict[str, Json] = {}
    for path, answer in zip(paths, cluster.gather([Read(path=path) for path in paths]), strict=True):
        if isinstance(answer, NotFoundError):
            continue
        if isinstance(answer, ClusterError):
            raise answer
        if (answer["metadata"].get("labels") or {}).get(tensorboard.LABEL) != job:
            raise ForeignObjectError(
                f"{path} is not of this verb (it has no label {tensorboard.LABEL}={job}), so it is left alone: rename "
                "or delete it with kubectl"
            )
        found[path] = answer
    return found


def _apply(cluster: ClusterClient, one: AppliedObject, *, force: bool, dry_run: bool) -> AppliedObject:
    manifest = one.after
    applied = cluster.apply(object_path(manifest), manifest, manager=FIELD_MANAGER, force=force, dry_run=dry_run)
    kind = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    return AppliedObject(before=one.before, after={**kind, **applied})
