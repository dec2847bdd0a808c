"""Lays an example of a rule over the clean job, so that the tests run each rule on what its page shows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hvd_elastic.mpijob.lint.rule import ManifestPart
from hvd_elastic.mpijob.manifests.writers import yaml_stream

MANIFESTS = Path(__file__).parent / "manifests"
CLEAN = MANIFESTS / "clean.yaml"
_TEMPLATE = {
    ManifestPart.LAUNCHER: "Launcher",
    ManifestPart.LAUNCHER_POD: "Launcher",
    ManifestPart.WORKER: "Worker",
    ManifestPart.WORKER_POD: "Worker",
}


def merge(base: Any, patch: Any, key: str = "") -> Any:
    """Merges as RFC 7386 does, but containers by name, as kubectl does."""
    if key == "containers" and isinstance(base, list) and isinstance(patch, list):
        return _merge_named(base, patch)
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value, name)
    return result


def _merge_named(base: list[Any], patch: list[Any]) -> list[Any]:
    if not patch:
        return []
    names = [item["name"] for item in base]
    merged = {item["name"]: item for item in base}
    for item in patch:
        merged[item["name"]] = merge(merged.get(item["name"]), item)
    return [merged[name] for name in dict.fromkeys([*names, *(item["name"] for item in patch)])]


def overlaid(example: str, part: ManifestPart) -> str:
    """The clean stream with the example in it."""
    if "slotsPerWorker: 4, slotsPerWorker: 1" in example:  # only text can hold a key twice
        return CLEAN.read_text().replace("  slotsPerWorker: 1\n", "  slotsPerWorker: 4\n  slotsPerWorker: 1\n")
    documents = list(_load(CLEAN.read_text()))
    patches = [patch for patch in _load(example) if patch]
    if part is not ManifestPart.RELATED_OBJECT:
        first, *patches = patches or [{}]
        documents[-1] = merge(documents[-1], _at_root(first, part))
    for patch in patches:
        documents = _beside(documents, patch)
    return yaml_stream.dump(documents)


def _load(text: str) -> Iterator[Any]:
    return yaml.load_all(text, Loader=yaml.CSafeLoader)


def _at_root(patch: Any, part: ManifestPart) -> Any:
    if part is ManifestPart.JOB:
        return patch
    role = _TEMPLATE[part]
    if part in (ManifestPart.LAUNCHER, ManifestPart.WORKER):
        patch = {"spec": {"containers": [{"name": role.lower(), **patch}]}}
    return {"spec": {"mpiReplicaSpecs": {role: {"template": patch}}}}


def _beside(documents: list[Any], patch: Any) -> list[Any]:
    key = (patch["kind"], patch["metadata"]["name"])
    if patch.pop("$patch", None) == "delete":
        return [d for d in documents if d["kind"] != key[0]]
    same = [d for d in documents if (d["kind"], d["metadata"]["name"]) == key]
    if patch["kind"] == "MPIJob" and same:
        return [merge(d, patch) if d is same[0] else d for d in documents]
    return [*(d for d in documents if (d not in same and d["kind"] != patch["kind"]) or d["kind"] == "MPIJob"), patch]
