"""Whether `workers.pod` and `launcher.pod` are parts of a pod template. What they may change is judged by the result
(`manifests/customization/promises.py`).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.priorityclasses.problem import Problem

MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "env": "name",
    "evictionResponders": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that are merged item by item, and the field that tells the items apart: `x-kubernetes-patch-merge-key` of
`io.k8s.api.core.v1.PodSpec` and what it holds (api/openapi-spec/swagger.json of Kubernetes 1.37). A name means the same
wherever it stands in a pod."""

_PARTS: Final = ("metadata", "spec")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_AFFINITIES: Final = ("nodeAffinity", "podAffinity", "podAntiAffinity")
_METADATA: Final = ("annotations", "labels")


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks the form of both."""
    yield from form_problems(spec.workers.pod, "workers.pod")
    yield from form_problems(spec.launcher.pod, "launcher.pod")


def form_problems(template: object, path: str) -> Iterator[Problem]:
    """Why `template` is not the whole or a part of a pod template, with the form that merging and judging need."""
    if not isinstance(template, Mapping):
        yield _no_form(path, template, "{metadata: ..., spec: ...}")
        return
    yield from _known(template, _PARTS, path)
    for part in _PARTS:
        value = template.get(part, {})
        if isinstance(value, Mapping):
            yield from _tree(value, f"{path}.{part}")
            yield from (_metadata if part == "metadata" else _placement)(value, f"{path}.{part}")
        else:
            yield Problem(path=f"{path}.{part}", value=value, what="is not a mapping", way_out=f"write {{{part}: ...}}")


def _known(value: Mapping[str, Any], known: tuple[str, ...], path: str) -> Iterator[Problem]:
    for key in value:
        if key not in known:
            what, way_out = "is not part of a pod template here", f"write {' or '.join(known)}"
            yield Problem(path=f"{path}.{key}", value=..., what=what, way_out=way_out)


def _metadata(metadata: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """The operator takes a template's labels and annotations alone (mpi-operator 0.8.2, `newWorker`)."""
    yield from _known(metadata, _METADATA, path)
    for key in _METADATA:
        values = metadata.get(key, {})
        if isinstance(values, Mapping):
            for name, value in values.items():
                if not isinstance(value, str | None):
                    yield Problem(
                        path=f"{path}.{key}[{name}]", value=value, what="is not text", way_out="put it in quotes"
                    )
        else:
            yield Problem(path=f"{path}.{key}", value=values, what="is not a mapping", way_out="write {key: value}")


def _placement(pod: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Both are added to what the job needs, so they cannot be null, and must have the form that they are added in."""
    if "tolerations" in pod:
        yield from _mappings(pod["tolerations"], f"{path}.tolerations")
    if "affinity" not in pod:
        return
    path, affinity = f"{path}.affinity", pod["affinity"]
    if not isinstance(affinity, Mapping):
        yield _no_form(path, affinity, "{nodeAffinity: ...}")
        return
    yield from _known(affinity, _AFFINITIES, path)
    for kind in _AFFINITIES:
        rules = affinity.get(kind, {})
        if not isinstance(rules, Mapping):
            yield _no_form(f"{path}.{kind}", rules, f"{{{_REQUIRED}: ...}}")
            continue
        yield from _known(rules, (_REQUIRED, _PREFERRED), f"{path}.{kind}")
        yield from _mappings(rules.get(_PREFERRED, []), f"{path}.{kind}.{_PREFERRED}")
        where, required = f"{path}.{kind}.{_REQUIRED}", rules.get(_REQUIRED, [])
        if kind == "nodeAffinity" and _REQUIRED in rules:
            if not isinstance(required, Mapping) or set(required) != {"nodeSelectorTerms"}:
                yield _no_form(where, required, "{nodeSelectorTerms: [...]}")
                continue
            where, required = f"{where}.nodeSelectorTerms", required["nodeSelectorTerms"]
        yield from _mappings(required, where)


def _mappings(value: object, path: str) -> Iterator[Problem]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        yield _no_form(path, value, "[{...}]")


def _no_form(path: str, value: object, form: str) -> Problem:
    if value is None:
        what, way_out = "cannot be removed: the job's own requirements of nodes stay", "leave it out"
    else:
        what, way_out = "has not the form of a pod's", f"write {form}"
    return Problem(path=path, value=..., what=what, way_out=way_out)


def _tree(value: object, path: str) -> Iterator[Problem]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _field(key, inner, path)
        case list():
            for number, item in enumerate(value):
                yield from _tree(item, f"{path}[{number}]")
        case None | str() | bool() | int():
            pass
        case float() if math.isfinite(value):
            pass
        case _:
            yield Problem(path=path, value=value, what="is not JSON", way_out="put it in quotes")


def _field(key: object, value: object, path: str) -> Iterator[Problem]:
    if not isinstance(key, str):
        yield Problem(path=path, value=key, what="is no name of a field", way_out="put it in quotes")
        return
    path = f"{path}.{key}"
    if key.startswith("$"):
        what, way_out = "is an order to kubectl's patches", "write null to remove a field"
        yield Problem(path=path, value=..., what=what, way_out=way_out)
    elif (name := MERGE_KEYS.get(key)) and isinstance(value, list):
        for number, item in enumerate(value):
            if not isinstance(item, Mapping) or not isinstance(item.get(name), str | int):
                what, way_out = f"has no {name}, by which items of {key} are told apart", f"add {name}"
                yield Problem(path=f"{path}[{number}]", value=..., what=what, way_out=way_out)
    elif name and value is not None:
        yield Problem(path=path, value=..., what="is not a list", way_out=f"write [{{{name}: ...}}]")
    yield from _tree(value, path)
