"""What Kubernetes knows of pods, and which of it a job's own pods may say: by trying each field."""

import functools
import json
from typing import Any

from hvd_elastic.mpijob.checks.pod_checks import MERGE_KEYS
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job
from tests.mpijob.modules import KUBERNETES

Schema = dict[str, Any]


@functools.cache
def published() -> dict[str, Schema]:
    """Kubernetes' types by name, without their groups: no two that a pod consists of have the same."""
    definitions = json.loads(KUBERNETES.local().read_text())["definitions"]
    groups = ("io.k8s.api.core.v1.", "io.k8s.apimachinery.")
    return {name.rpartition(".")[2]: one for name, one in definitions.items() if name.startswith(groups)}


@functools.cache
def refused_fields() -> frozenset[str]:
    """Fields of a pod's `spec` that no job may set, whatever their value."""
    fields = published()["PodSpec"]["properties"]
    return frozenset(field for field, schema in fields.items() if _is_refused(f"spec.{field}", field, schema))


@functools.cache
def refused_container_fields() -> frozenset[str]:
    """Fields that no job may set of its own container."""
    fields = published()["Container"]["properties"]
    return frozenset(
        field
        for field, schema in fields.items()
        if field != "name" and _is_refused(f"spec.containers[worker].{field}", field, schema)
    )


def _is_refused(path: str, field: str, schema: Schema) -> bool:
    value = _sample(field, schema)
    fields = {"containers": [{"name": "worker", field: value}]} if "containers[" in path else {field: value}
    try:
        render(job(workers__pod={"spec": fields}))
    except InvalidInputError as error:
        return f"workers.pod.{path}" in {problem.path for problem in error.problems}
    return False


def _sample(field: str, schema: Schema) -> object:
    """A value that no rendered pod has."""
    match schema.get("type"):
        case "boolean":
            return True
        case "integer":
            return 7
        case "string":
            return "other"
        case "array" if "$ref" in schema["items"]:
            return [{MERGE_KEYS.get(field, "name"): "other"}]
        case "array":
            return ["other"]
        case _:
            return {"other": "1"}
