"""A job out of a kustomize overlay of what `generate --output-dir` wrote.

    folder ──kustomize──► YAML ──► the base's own description, with `patches` for all that the overlay changes
                               └─► objects that the overlay adds

So the same promises hold as for patches, and whatever renders the job again, as `restart` does, has the overlay in it.
"""

import dataclasses
import shutil
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from hvd_elastic.client.operations.resource_paths import CLUSTER_WIDE, PLURALS
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, Exit, HvdElasticError
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.patch_spec import PatchSpec, PatchTarget
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.lint.document import manifest_reader
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.manifests.customization.patches import merge_difference, object_name
from hvd_elastic.mpijob.manifests.customization.promises import REPLICA_SPECS
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_PROGRAMS: Final = (("kustomize", "build"), ("kubectl", "kustomize"))
_SECONDS: Final = 120
"""For all of it: an overlay may name bases that have to be fetched."""
_NEW_BASE: Final = "generate the base again: hvd-elastic generate job.yaml --output-dir BASE"

_Identity: TypeAlias = tuple[str, str, str, str]


class KustomizeError(HvdElasticError):
    """Nothing that runs kustomize is there, or it failed. Nothing was written."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What an overlay makes of a job."""

    spec: JobSpec
    """The base's description, with a patch for each object that the overlay changes, and with the overlay's image."""
    changed: Sequence[str]
    """Objects that it changes, as `KIND/NAME`."""
    beside: Sequence[Manifest]
    """Objects that it adds."""


def build(folder: Path) -> str:
    """What kustomize prints for a folder. Raises KustomizeError."""
    argv = next((argv for argv in _PROGRAMS if shutil.which(argv[0])), None)
    if argv is None:
        raise KustomizeError(
            "neither kustomize nor kubectl, which has it built in, is on the PATH: install one of them "
            "(https://kubectl.docs.kubernetes.io/installation/kustomize)"
        )
    words = [*argv, str(folder.absolute())]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KustomizeError(f"{' '.join(words)}: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise KustomizeError(f"{' '.join(words)}: {said}")
    return done.stdout


def read_overlay(text: str, *, source: str) -> Overlay:
    """The job in what kustomize has printed. `source` is how messages call it.

    Raises InvalidInputError if there is not one job of `generate` in it, or the overlay changes, leaves out or adds
    what it cannot.
    """
    objects = {_identity(one): one for one in _objects(text, source)}
    job = _job(list(objects.values()), source)
    base = _base(job, source)
    spec = read_job(base.as_json(), {"image": _image(base, job)})
    rendered = {_identity(one): one for one in render(spec)}
    added = [one for identity, one in objects.items() if identity not in rendered]
    if problems := [*_missing(rendered, objects, source), *_unknown(added, source)]:
        raise InvalidInputError(problems)
    job["metadata"]["annotations"][ANNOTATION_SPEC] = spec.as_json()  # it is written anew, and is no change
    differences = {identity: merge_difference(one, objects[identity]) for identity, one in rendered.items()}
    changed = [identity for identity, difference in differences.items() if difference]
    patches = [PatchSpec(target=PatchTarget(kind=one[1], name=one[3]), patch=differences[one]) for one in changed]
    overlaid = spec.model_copy(update={"patches": [*spec.patches, *patches]})
    try:
        render(overlaid)
    except InvalidInputError as error:
        raise InvalidInputError(
            dataclasses.replace(one, path=one.path.replace("patches", source, 1)) for one in error.problems
        ) from None
    return Overlay(
        spec=overlaid,
        changed=[object_name(rendered[one]) for one in changed],
        beside=[_placed(one, spec.namespace) for one in added],
    )


def _objects(text: str, source: str) -> list[Manifest]:
    documents, problems = manifest_reader.read(text, source)
    for document in documents:
        view = document.view
        if not (view.get("apiVersion").text and view.get("kind").text and view.get("metadata", "name").text):
            what, way_out = "an object has no apiVersion, kind or name", "look at what kustomize prints"
            problems.append(Problem(path=source, value=..., what=what, way_out=way_out))
    if problems:
        raise InvalidInputError(problems)
    return [document.value for document in documents if isinstance(document.value, dict)]


def _identity(one: Manifest) -> _Identity:
    return one["apiVersion"], one["kind"], str(one["metadata"].get("namespace", "")), one["metadata"]["name"]


def _job(objects: Sequence[Manifest], source: str) -> Manifest:
    jobs = [one for one in objects if one["kind"] == "MPIJob"]
    if len(jobs) == 1 and _description(jobs[0]):
        return jobs[0]
    names = ", ".join(one["metadata"]["name"] for one in jobs)
    what = f"holds several MPIJobs ({names})" if len(jobs) > 1 else "holds no MPIJob that hvd-elastic has generated"
    way_out = "name under `resources` one base that `hvd-elastic generate job.yaml --output-dir BASE` has written"
    raise InvalidInputError([Problem(path=source, value=..., what=what, way_out=way_out)])


def _description(job: Manifest) -> str | None:
    return ManifestView(job).get("metadata", "annotations", ANNOTATION_SPEC).text


def _base(job: Manifest, source: str) -> JobSpec:
    """The description from which the base was generated."""
    try:
        spec = read_job(_description(job) or "")
    except InvalidInputError as error:
        what = f"has the job description of another release ({'; '.join(map(str, error.problems))})"
        raise InvalidInputError([Problem(path=source, value=..., what=what, way_out=_NEW_BASE)]) from None
    moved = [
        Problem(path=f"{source}: {key}", value=now, what=f"is {ours!r} in the job's own arguments", way_out=_NEW_BASE)
        for key, ours in (("name", spec.name), ("namespace", spec.namespace))
        if (now := job["metadata"].get(key)) != ours
    ]
    if moved:
        raise InvalidInputError(moved)
    return spec


def _image(base: JobSpec, job: Manifest) -> str | None:
    """The image that the overlay gives to all of the job's own containers (`images` of kustomize); else the base's."""
    before = {place: image for one in render(base) if one["kind"] == "MPIJob" for place, image in _images(one)}
    after = dict(_images(job))
    now = {after.get(place) for place, image in before.items() if image == base.image}
    return now.pop() or base.image if len(now) == 1 else base.image


def _images(job: Manifest) -> Iterator[tuple[Sequence[str], str | None]]:
    """Role, group and name of each container, and its image."""
    for specs in REPLICA_SPECS:
        for role, replicas in ManifestView(job).get("spec", specs).pairs():
            for group in ("initContainers", "containers"):
                for container in replicas.get("template", "spec", group).items():
                    yield (role, group, str(container.get("name").text)), container.get("image").text


def _missing(rendered: Mapping[_Identity, Manifest], objects: Container[_Identity], source: str) -> Iterator[Problem]:
    for identity, one in rendered.items():
        if identity not in objects:
            way_out = f"leave it in; what is generated beside a job is said in its description: {_NEW_BASE}"
            yield Problem(path=source, value=object_name(one), what="is missing", way_out=way_out)


def _unknown(added: Iterable[Manifest], source: str) -> Iterator[Problem]:
    for one in added:
        if one["kind"] not in PLURALS:
            way_out = "apply it with kubectl before the job, and leave it out"
            yield Problem(path=source, value=object_name(one), what="is not submitted with a job", way_out=way_out)


def _placed(one: Manifest, namespace: str) -> Manifest:
    if one["kind"] in CLUSTER_WIDE:
        return one
    return {**one, "metadata": {"namespace": namespace, **one["metadata"]}}
