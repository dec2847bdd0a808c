"""`patches` of a job, applied to what was rendered."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException

from hvd_elastic.mpijob.description import yaml_document
from hvd_elastic.mpijob.description.patch_spec import PatchSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.priorityclasses.problem import Problem

_LONGEST_SHOWN: Final = 200


def patched(patches: Sequence[PatchSpec], manifests: Sequence[Manifest]) -> tuple[list[Manifest], list[Problem]]:
    """The manifests with all patches applied in their order, and why some could not be. The input is not changed."""
    result, problems = deepcopy(list(manifests)), list[Problem]()
    for number, patch in enumerate(patches):
        path = f"patches[{number}]"
        change, wrong = _read(patch, f"{path}.patch")
        problems += wrong
        if change is None:
            continue
        places = [place for place, manifest in enumerate(result) if _is_meant(patch, manifest)]
        if not places:
            problems.append(_hits_nothing(patch, path, manifests))
        for place in places:
            changed, wrong = _applied(change, result[place], f"{path}.patch")
            result[place] = changed
            problems += wrong
    return result, problems


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
    there = ", ".join(dict.fromkeys(f"{each['kind']}/{each['metadata']['name']}" for each in manifests))
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
    what = f"does not fit {manifest['kind']}/{manifest['metadata']['name']}: {why[:_LONGEST_SHOWN]}"
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


def promised(before: Manifest, after: Manifest) -> Iterator[Problem]:
    """What no patch may change of an object: what it is, and how the job finds it again."""
    name = f"{before['kind']}/{before['metadata']['name']}"
    metadata = after.get("metadata") if isinstance(after.get("metadata"), Mapping) else {}
    assert isinstance(metadata, Mapping)
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
