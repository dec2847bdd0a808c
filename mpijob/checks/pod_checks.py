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
`io.k8s.api.core.v1.PodSpec` and what it holds (api/openapi-spec/swagger.json of Kubernetes 1.34). A name means the same
wherever it stands in a pod."""

_PARTS: Final = ("metadata", "spec")
_METADATA: Final = ("annotations", "labels")


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks the form of both."""
    for path, template in (("workers.pod", spec.workers.pod), ("launcher.pod", spec.launcher.pod)):
        yield from _known(template, _PARTS, path)
        for part in _PARTS:
            value = template.get(part, {})
            if part in template and not isinstance(value, Mapping):
                yield Problem(path=f"{path}.{part}", value=value, what="is not a mapping", way_out=f"write {{{part}: ...}}")
            else:
                yield from _tree(value, f"{path}.{part}")
        metadata = template.get("metadata", {})
        if isinstance(metadata, Mapping):
            yield from _metadata(metadata, f"{path}.metadata")


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
                    yield Problem(path=f"{path}.{key}[{name}]", value=value, what="is not text", way_out="put it in quotes")
        else:
            yield Problem(path=f"{path}.{key}", value=values, what="is not a mapping", way_out="write {key: value}")


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
