"""Two pod templates become one as Kubernetes merges them, but that nothing which places a pod is lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.mpijob.checks.pod_checks import MERGE_KEYS
from hvd_elastic.mpijob.manifests.customization.pod_merge import merged_template
from tests.mpijob.modules import KUBERNETES

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merged(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = merged_template({"spec": base}, {"spec": overlay})["spec"]
    return spec


def test_lists_are_merged_by_the_keys_that_kubernetes_publishes() -> None:
    definitions = json.loads(KUBERNETES.local().read_text())["definitions"]
    published = dict(merge_keys(definitions, "io.k8s.api.core.v1.PodSpec", set()))
    refused = {"ephemeralContainers", "ownerReferences"}
    assert {field: key for field, key in published.items() if field not in refused} == MERGE_KEYS


def merge_keys(definitions: dict[str, Any], name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Field and merge key of each list below a type."""
    if name in seen:
        return
    seen.add(name)
    for field, schema in definitions[name].get("properties", {}).items():
        if "x-kubernetes-patch-merge-key" in schema:
            yield field, schema["x-kubernetes-patch-merge-key"]
        for inner in (schema, schema.get("items", {}), schema.get("additionalProperties", {})):
            if isinstance(inner, dict) and "$ref" in inner:
                yield from merge_keys(definitions, inner["$ref"].rpartition("/")[2], seen)


def test_an_item_of_the_same_key_is_merged_and_another_is_added() -> None:
    base = {"containers": [{"name": "worker", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}
    overlay = {
        "containers": [
            {"name": "worker", "tty": True, "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]
    assert merged(base, overlay) == {
        "containers": [{"name": "worker", "tty": True, "env": env}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }


def test_null_removes_a_field_and_other_lists_are_replaced() -> None:
    base = {"securityContext": {"runAsUser": 1000, "fsGroup": 1000, "supplementalGroups": [1, 2]}}
    overlay = {"securityContext": {"runAsUser": None, "supplementalGroups": [3]}}
    assert merged(base, overlay) == {"securityContext": {"fsGroup": 1000, "supplementalGroups": [3]}}


def test_tolerations_are_added_each_once() -> None:
    spot, own = {"key": "spot", "operator": "Exists"}, {"key": "own", "operator": "Exists"}
    assert merged({"tolerations": [spot]}, {"tolerations": [spot, own]}) == {"tolerations": [spot, own]}


def selector(*terms: list[str]) -> dict[str, Any]:
    made = [{"matchExpressions": [{"key": key, "operator": "Exists"} for key in term]} for term in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": made}}}


def test_a_node_must_meet_one_term_of_each_side() -> None:
    both = merged({"affinity": selector(["a"], ["b"])}, {"affinity": selector(["c"], ["d", "a"])})
    assert both == {"affinity": selector(["a", "c"], ["a", "d"], ["b", "c"], ["b", "d", "a"])}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_rules_about_other_pods_are_added(kind: str) -> None:
    zone, host = {"topologyKey": "zone"}, {"topologyKey": "host"}
    wish = {"weight": 1, "podAffinityTerm": host}
    both = merged({"affinity": {kind: {REQUIRED: [zone]}}}, {"affinity": {kind: {REQUIRED: [host], PREFERRED: [wish]}}})
    assert both == {"affinity": {kind: {REQUIRED: [zone, host], PREFERRED: [wish]}}}


def test_neither_side_is_changed() -> None:
    base, overlay = (
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"volumes": [{"name": "a", "emptyDir": {"medium": "x"}}]},
    )
    before = json.dumps([base, overlay])
    merged(base, overlay)["volumes"][0]["emptyDir"]["medium"] = "y"
    assert json.dumps([base, overlay]) == before
