"""What applying a job would change, as a unified diff of YAML, as `kubectl diff` shows it."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from hvd_elastic.mpijob.contract import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_BEGUN,
    ANNOTATION_EXCLUDED_NODES,
    ANNOTATION_STATUS,
)
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump

_SERVERS_OWN: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
"""Metadata that the API server writes, whoever applies."""
_CONTROLLERS_OWN: Final = frozenset(
    {ANNOTATION_AUTOSCALER, ANNOTATION_BEGUN, ANNOTATION_EXCLUDED_NODES, ANNOTATION_STATUS}
)
"""Annotations that the job's sidecar and the platform's controllers write, and no manifest. A job that trains has a new
status each few seconds, so between a look at it and a rehearsal, too."""


def content(thing: Mapping[str, Any] | None) -> dict[str, Any]:
    """An object without what the API server and the controllers write. None is an object that does not exist."""
    if thing is None:
        return {}
    metadata = _without(_SERVERS_OWN, thing["metadata"])
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = _without(_CONTROLLERS_OWN, annotations)
    return {**_without({"status"}, thing), "metadata": metadata}


def unified_diff(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The lines that differ, with three lines around them; empty if none does. None: it does not exist."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live/{name}", f"applied/{name}")
    return "".join(lines)


def _without(keys: Collection[str], mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in keys}


def _lines(thing: Mapping[str, Any] | None) -> list[str]:
    return dump([_sorted(content(thing))]).splitlines(keepends=True) if thing is not None else []


def _sorted(value: Any) -> Any:
    """Mappings in the order of their keys: the API server's order is not ours."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(inner) for inner in value] if isinstance(value, list | tuple) else value
