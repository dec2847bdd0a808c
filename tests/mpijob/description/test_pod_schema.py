"""The schema of a job's own pods is Kubernetes' own, but for what a job refuses and for what a part may leave out."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hvd_elastic.mpijob.description.json_schema import schema
from hvd_elastic.mpijob.description.pod_schema import PREFIX, TEMPLATE, definitions
from tests.mpijob.pod_fields import Schema, published, refused_fields

FILE = Path(__file__).parents[3] / "mpijob" / "description" / "pod_schema.json"
VALIDATOR = Draft202012Validator(schema())

SCALARS = {"Quantity": ["string", "number"], "IntOrString": ["string", "integer"], "Time": ["string"]}


def left_out(name: str) -> set[str]:
    """Fields that are refused wherever they stand, or that the operator does not take over (`pod_checks.py`)."""
    match name:
        case "PodSpec":
            return set(refused_fields())
        case "SecurityContext":
            return {"privileged"}
        case "ObjectMeta":
            return set(published()[name]["properties"]) - {"annotations", "labels"}
        case _:
            return set()


def made() -> dict[str, Schema]:
    """The schema as it is made of what Kubernetes publishes."""
    result: dict[str, Schema] = {}
    waiting = ["PodTemplateSpec"]
    for name in waiting:
        if name in result:
            continue
        source = published()[name]
        if name in SCALARS:
            result[name] = {"type": [*SCALARS[name], "null"]}
            continue
        fields = {field: one for field, one in source["properties"].items() if field not in left_out(name)}
        result[name] = {
            "type": ["object", "null"],
            "properties": {field: _described(one, waiting) for field, one in fields.items()},
            "additionalProperties": False,
        }
    return {PREFIX + name: result[name] for name in sorted(result)}


def _described(source: Schema, waiting: list[str]) -> Schema:
    """With the first sentence of what Kubernetes says of it."""
    said = re.split(r"(?<!e\.g)(?<!i\.e)\.(?=\s)|\n", source.get("description", ""))[0].rstrip(".")
    return {"description": f"{said}.", **_typed(source, waiting)} if said else _typed(source, waiting)


def _typed(source: Schema, waiting: list[str]) -> Schema:
    if "$ref" in source:
        name = source["$ref"].rpartition(".")[2]
        waiting.append(name)
        return {"$ref": f"#/$defs/{PREFIX}{name}"}
    result: Schema = {"type": [source["type"], "null"]}
    for inner in ("items", "additionalProperties"):
        if inner in source:
            result[inner] = _typed(source[inner], waiting)
    return result


def test_it_is_what_kubernetes_publishes() -> None:
    expected = made()
    if os.environ.get("HVD_ELASTIC_UPDATE_GOLDEN"):
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in expected.items())
        FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        definitions.cache_clear()
    assert definitions() == expected
    assert TEMPLATE in expected


def errors(pod: dict[str, Any], section: str = "workers") -> list[str]:
    found = VALIDATOR.iter_errors({"name": "a", "command": ["b"], section: {"pod": pod}})
    return [leaf.message for error in found for leaf in [*(error.context or ()), error] if not leaf.context]


@pytest.mark.parametrize("section", ["workers", "launcher"])
def test_a_part_of_a_template_is_valid(section: str) -> None:
    pod = {
        "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "rdma"}, "labels": {"gone": None}},
        "spec": {
            "runtimeClassName": "nvidia",
            "dnsPolicy": None,
            "containers": [
                {
                    "name": "worker",
                    "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
                    "securityContext": {"capabilities": None},
                }
            ],
            "initContainers": [{"name": "log", "image": "log:1", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}],
            "tolerations": [{"key": "own", "operator": "Exists"}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }
    assert errors(pod, section) == []


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"spec": {"runtimeClasName": "nvidia"}}, "'runtimeClasName' was unexpected"),
        ({"spec": {"hostPID": True}}, "'hostPID' was unexpected"),
        ({"spec": {"ephemeralContainers": []}}, "'ephemeralContainers' was unexpected"),
        ({"metadata": {"name": "mine"}}, "'name' was unexpected"),
        (
            {"spec": {"containers": [{"name": "worker", "env": [{"name": "A", "value": 1}]}]}},
            "1 is not of type 'string'",
        ),
        ({"spec": {"volumes": [{"name": "a", "emptyDir": {"sizelimit": 1}}]}}, "'sizelimit' was unexpected"),
    ],
)
def test_a_slip_is_seen(pod: dict[str, Any], said: str) -> None:
    assert said in " ".join(errors(pod))


def test_fields_say_what_they_are() -> None:
    container = schema()["$defs"][f"{PREFIX}Container"]["properties"]
    assert container["tty"]["description"].startswith("Whether this container should allocate a TTY for itself")
