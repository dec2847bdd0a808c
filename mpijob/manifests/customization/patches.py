"""`patches` of a job, applied to what was rendered."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException

from hvd_elastic.mpijob.description import yaml_document
from hvd_elastic.mpijob.description.patch_spec import PatchSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.priorityclasses.problem import Problem

_LONGEST_SHOWN: Final = 200
_SELECTING: Final = {"NetworkPolicy": "podSelector", "PodDisruptionBudget": "selector", "PodMonitor": "selector"}
"""The field of each kind that says which pods it is for. kustomize's `commonLabels` adds labels to it that a job's pods
do not have (`commonLabels` of its api/internal/konfig/builtinpluginconsts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchEffect:
    """What one of a job's `patches` does. Objects are named `KIND/NAME`."""

    path: str
    """`patches[0]`."""
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Objects that are meant, and are already as the patch would have them."""

    def __str__(self) -> str:
        """For people. That nothing changes is no error: other jobs that share the patch may need it."""
        unchanged = f"nothing in {', '.join(self.unchanged)}, as the patch would have it already"
        if not self.changed:
            return f"{self.path} changes {unchanged}: leave the patch out, or look for a slip in it"
        return f"{self.path} changes {', '.join(self.changed)}{f', and {unchanged}' if self.unchanged else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """What became of manifests."""

    manifests: list[Manifest]
    effects: list[PatchEffect]
    """Of each patch that could be read, in their order."""
    problems: list[Problem]
    """Why patches could not be applied."""


def patched(patches: Sequence[PatchSpec], manifests: Sequence[Manifest]) -> Patched:
    """All patches applied in their order. The input is not changed."""
    result, effects, problems = deepcopy(list(manifests)), list[PatchEffect](), list[Problem]()
    for number, patch in enumerate(patches):
        path = f"patches[{number}]"
        change, wrong = _read(patch, f"{path}.patch")
        problems += wrong
        if change is None:
            continue
        changed, unchanged = list[str](), list[str]()
        for place, manifest in enumerate(manifests):
            if not _is_meant(patch, manifest):
                continue
            before = result[place]
            result[place], wrong = _applied(change, before, f"{path}.patch")
            problems += wrong
            (unchanged if result[place] == before else changed).append(object_name(manifest))
        if not changed and not unchanged:
            problems.append(_hits_nothing(patch, path, manifests))
        effects.append(PatchEffect(path=path, changed=tuple(changed), unchanged=tuple(unchanged)))
    return Patched(manifests=result, effects=effects, problems=problems)


def object_name(manifest: Mapping[str, Any]) -> str:
    """`KIND/NAME`."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _read(patch: PatchSpec, path: str) -> tuple[Any, list[Problem]]:
    """The patch as a mapping or a list; None and the reason if its text is neither."""
    if not isinstance(patch.patch, str):
        return patch.patch, []
    is_list = patch.patch.lstrip().startswith(("-", "["))
    value, problems = (yaml_document.parse_list if is_list else yaml_document.parse)(patch.patch, name=path)
    return (None if problems else value), problems


def _is_meant(patch: PatchSpec, manifest: Manifest) -> bool:
    name = patch.target.name
    return bool(manifest["kind"] == patch.target.kind and name in {None, manifest["metadata"]["name"]})


def _hits_nothing(patch: PatchSpec, path: str, manifests: Sequence[Manifest]) -> Problem:
    target = "/".join(part for part in (patch.target.kind, patch.target.name) if part)
    there = ", ".join(dict.fromkeys(map(object_name, manifests)))
    what = "is no object of this job"
    return Problem(path=f"{path}.target", value=target, what=what, way_out=f"choose among {there}")


def _applied(change: Any, manifest: Manifest, path: str) -> tuple[Manifest, list[Problem]]:
    if isinstance(change, Mapping):
        return merge_patch(manifest, change), []
    try:
        changed = jsonpatch.apply_patch(manifest, change)
        return (
            (changed, [])
            if isinstance(changed, dict)
            else (manifest, [_does_not_fit(path, manifest, "it is no object then")])
        )
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError, AttributeError) as error:
        return manifest, [_does_not_fit(path, manifest, str(error))]


def _does_not_fit(path: str, manifest: Manifest, why: str) -> Problem:
    what = f"does not fit {object_name(manifest)}: {why[:_LONGEST_SHOWN]}"
    return Problem(path=path, value=..., what=what, way_out="look at it with `hvd-elastic generate` without the patch")


def merge_patch(target: Any, patch: Any) -> Any:
    """`patch` applied to `target`, as RFC 7396 has it."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def merge_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest merge patch that makes `after` of `before`; empty if they are equal."""
    result: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_difference(old, value):
                result[key] = inner
        elif key not in before or value != old:
            result[key] = deepcopy(value)
    return result


def promised(before: Manifest, after: Manifest) -> Iterator[Problem]:
    """What no patch may change of an object: what it is, how the job finds it again, and which pods it is for."""
    name = object_name(before)
    metadata = after.get("metadata") if isinstance(after.get("metadata"), Mapping) else {}
    assert isinstance(metadata, Mapping)
    if field := _SELECTING.get(before["kind"]):
        spec = after.get("spec") if isinstance(after.get("spec"), Mapping) else {}
        assert isinstance(spec, Mapping)
        if spec.get(field) != before["spec"].get(field):
            yield _refused(name, f"spec.{field}", ..., "selects the job's pods")
    for field in ("apiVersion", "kind"):
        if before[field] != after.get(field):
            yield _refused(name, field, after.get(field), "is what the object is")
    for field in ("name", "namespace"):
        if before["metadata"].get(field) != metadata.get(field):
            yield _refused(name, f"metadata.{field}", metadata.get(field), "is how the job finds the object again")
    for field in ("labels", "annotations"):
        now = metadata.get(field) or {}
        for key, value in before["metadata"].get(field, {}).items():
            if now.get(key) != value:
                yield _refused(name, f"metadata.{field}[{key}]", now.get(key), "is how the job finds the object again")


def _refused(name: str, field: str, value: object, what: str) -> Problem:
    return Problem(path=f"patches: {name}: {field}", value=value, what=what, way_out="leave it out")
