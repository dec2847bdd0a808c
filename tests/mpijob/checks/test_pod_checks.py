"""`workers.pod` and `launcher.pod` must be parts of a pod template, and each thing that is none is named."""

from typing import Any

import pytest

from tests.mpijob.jobs import refused

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("pod", "path", "what"),
    [
        ({"kind": "Pod"}, "kind", "is not part of a pod template here: write metadata or spec"),
        ({"spec": [1]}, "spec", "is not a mapping"),
        ({"metadata": {"name": "a"}}, "metadata.name", "write annotations or labels"),
        ({"metadata": {"annotations": {"inject": False}}}, "metadata.annotations[inject]", "put it in quotes"),
        ({"spec": {"containers": {"name": "a"}}}, "spec.containers", "is not a list: write [{name: ...}]"),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.volumes[0]", "has no name, by which items of volumes"),
        ({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, "spec.containers[0].$patch", "write null"),
        ({"spec": {"overhead": {1: "a"}}}, "spec.overhead", "is no name of a field"),
        ({"spec": {"priority": float("nan")}}, "spec.priority", "is not JSON"),
        ({"spec": {"tolerations": None}}, "spec.tolerations", "cannot be removed"),
        ({"spec": {"affinity": None}}, "spec.affinity", "cannot be removed"),
        ({"spec": {"affinity": {"nodes": {}}}}, "spec.affinity.nodes", "is not part of a pod template"),
        ({"spec": {"affinity": {"podAffinity": 1}}}, "spec.affinity.podAffinity", "has not the form"),
        (
            {"spec": {"affinity": {"nodeAffinity": {REQUIRED: [{"matchExpressions": []}]}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}",
            "write {nodeSelectorTerms: [...]}",
        ),
        (
            {"spec": {"affinity": {"podAffinity": {REQUIRED: {"topologyKey": "zone"}}}}},
            f"spec.affinity.podAffinity.{REQUIRED}",
            "write [{...}]",
        ),
    ],
)
@pytest.mark.parametrize("role", ["workers", "launcher"])
def test_what_is_no_part_of_a_pod_template_is_named(role: str, pod: dict[str, Any], path: str, what: str) -> None:
    problems = refused(**{f"{role}__pod": pod})
    assert list(problems) == [f"{role}.pod.{path}"]
    assert what in problems[f"{role}.pod.{path}"]
