"""The rendered manifests with all that a job changes of them: its pods, then its patches."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.customization.patches import PatchEffect, object_name, patched, promised
from hvd_elastic.mpijob.manifests.customization.pod_merge import merged_template
from hvd_elastic.mpijob.manifests.customization.promises import (
    REPLICA_SPECS,
    broken_job_promises,
    broken_promises,
)
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Customized:
    """All manifests of a job as they are written, and what its patches did to them."""

    manifests: list[Manifest]
    effects: list[PatchEffect]


def customized(spec: JobSpec, rendered: Sequence[Manifest]) -> Customized:
    """What becomes of `rendered`. Raises InvalidInputError with all that is refused."""
    overlays = {"Worker": ("workers.pod", spec.workers.pod), "Launcher": ("launcher.pod", spec.launcher.pod)}
    manifests, problems = deepcopy(list(rendered)), list[Problem]()
    for role in _roles(manifests):
        path, overlay = overlays[role.name]
        if overlay:
            before = role.replicas["template"]
            role.replicas["template"] = merged_template(before, overlay)
            problems += broken_promises(before, role.replicas["template"], path)
    if problems:
        raise InvalidInputError(problems)
    result = patched(spec.patches, manifests)
    if problems := result.problems or list(_broken_by_patches(rendered, result.manifests) if spec.patches else ()):
        raise InvalidInputError(problems)
    return Customized(manifests=result.manifests, effects=result.effects)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Role:
    """The replica spec of a role, in its job."""

    name: str
    replicas: dict[str, Any]
    path: str


def _roles(manifests: Sequence[Manifest]) -> Iterator[_Role]:
    for manifest in manifests:
        for field in REPLICA_SPECS:
            specs: Mapping[str, dict[str, Any]] = manifest.get("spec", {}).get(field, {})
            for name, replicas in specs.items():
                yield _Role(name=name, replicas=replicas, path=f"spec.{field}.{name}")


def _broken_by_patches(before: Sequence[Manifest], after: Sequence[Manifest]) -> Iterator[Problem]:
    for one, other in zip(before, after, strict=True):
        problems = list(promised(one, other))
        yield from problems
        if not problems and list(_roles([one])):
            yield from _broken_in_job(one, other)


def _broken_in_job(before: Manifest, after: Manifest) -> Iterator[Problem]:
    name = f"patches: {object_name(before)}"
    problems = list(broken_job_promises(before["spec"], after.get("spec"), f"{name}: spec"))
    yield from problems
    if problems:
        return
    for one, other in zip(_roles([before]), _roles([after]), strict=True):
        template, now = one.replicas["template"], other.replicas.get("template")
        yield from broken_promises(template, now, f"{name}: {one.path}.template")
