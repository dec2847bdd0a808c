"""The kit is what the single verbs print, in a form that the real kustomize takes."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.decide.autoscale import controller_manifests
from hvd_elastic.priorityclasses import DEFAULTS, ClassQuota, ClassUser, guard_manifests, manifest
from hvd_elastic.setup.platform_kit.kit_files import kit_files
from hvd_elastic.setup.platform_kit.kit_folder import write_kit
from hvd_elastic.setup.platform_kit.kit_parts import (
    COMPONENTS,
    KUEUE,
    OPERATOR_WATCHDOG,
    SLOW_NODES,
    KitSettings,
    kit_parts,
)
from hvd_elastic.setup.platform_kit.kueue_queues import QueueGpus
from tests.mpijob import admission

pytestmark = pytest.mark.timeout(900)  # the program is built by whichever test comes first

FULL = KitSettings(
    users=(ClassUser(namespace="serving"),),
    quotas=(ClassQuota(namespace="serving", gpus=16, resource="nvidia.com/gpu"),),
    queue_gpus=QueueGpus(serving=14, training=2),
    image="registry.example.com/hvd-elastic:1.0",
    autoscaler_namespace="ops",
    monitoring_labels={"release": "kube-prometheus-stack"},
)
KINDS = {
    "ClusterRole": 2,
    "ClusterRoleBinding": 2,
    "ConfigMap": 1,
    "Deployment": 1,
    "Lease": 1,
    "NetworkPolicy": 1,
    "PriorityClass": 4,
    "ResourceQuota": 1,
    "Role": 1,
    "RoleBinding": 1,
    "ServiceAccount": 1,
    "ValidatingAdmissionPolicy": 2,
    "ValidatingAdmissionPolicyBinding": 2,
}
"""Of a whole kit without components."""


def build(kustomize: Path, folder: Path) -> list[dict[str, Any]]:
    """The objects that `kubectl apply -k` would apply."""
    done = subprocess.run([kustomize, "build", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def counted(objects: list[dict[str, Any]]) -> dict[str, int]:
    kinds = [one["kind"] for one in objects]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def identity(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def test_the_base_alone_is_what_every_cluster_takes(kustomize: Path, tmp_path: Path) -> None:
    write_kit(kit_files(kit_parts(FULL)), tmp_path)
    built = build(kustomize, tmp_path)
    assert counted(built) == KINDS
    assert [problem for one in built for problem in admission.errors(one)] == []


def test_components_are_applied_where_they_are_switched_on(kustomize: Path, tmp_path: Path) -> None:
    write_kit(kit_files(kit_parts(FULL), switched_on=COMPONENTS), tmp_path)
    built = build(kustomize, tmp_path)
    guards = {"ValidatingAdmissionPolicy": 7, "ValidatingAdmissionPolicyBinding": 7}
    guards |= {"MutatingAdmissionPolicy": 1, "MutatingAdmissionPolicyBinding": 1}
    guards |= {"ClusterQueue": 2, "ResourceFlavor": 1}
    more = {**guards, "ClusterRole": KINDS["ClusterRole"] + 4, "ConfigMap": 2, "PrometheusRule": 1}
    thrice, twice = ("Deployment", "NetworkPolicy", "ServiceAccount"), ("Role", "RoleBinding")
    controllers = {"ClusterRoleBinding": KINDS["ClusterRoleBinding"] + 2, **dict.fromkeys(twice, 2)}
    controllers |= dict.fromkeys(thrice, 3)
    assert counted(built) == dict(sorted({**KINDS, **more, **controllers}.items()))
    assert [problem for one in built for problem in admission.errors(one)] == []


def test_an_overlay_takes_the_base_and_what_it_can_use(kustomize: Path, tmp_path: Path) -> None:
    write_kit(kit_files(kit_parts(FULL)), tmp_path / "kit")
    overlay = {
        "resources": ["../kit"],
        "components": ["../kit/components/dashboard"],
        "images": [{"name": "registry.example.com/hvd-elastic", "newTag": "1.1"}],
    }
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    built = build(kustomize, tmp_path / "prod")
    assert "PrometheusRule" not in counted(built)
    assert "1" in {one["metadata"].get("labels", {}).get("grafana_dashboard") for one in built}
    (deployment,) = (one for one in built if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/hvd-elastic:1.1"


def test_kustomize_changes_nothing_of_what_the_verbs_print(kustomize: Path, tmp_path: Path) -> None:
    """Above all not the dashboard, whose text has `$` and `{{` in it."""
    parts = kit_parts(FULL)
    write_kit(kit_files(parts, switched_on=COMPONENTS), tmp_path)
    rendered = {identity(one): one for part in parts for one in part.manifests}
    assert {identity(one): one for one in build(kustomize, tmp_path)} == rendered


def test_each_part_is_what_its_verb_makes() -> None:
    parts = {part.name: list(part.manifests) for part in kit_parts(FULL)}
    assert parts["priorityclasses"] == [manifest(one) for one in DEFAULTS]
    assert parts["guard"] == guard_manifests(DEFAULTS, FULL.users, FULL.quotas)
    assert parts["autoscaler"] == controller_manifests.manifests(image=FULL.image, namespace="ops")
    assert parts["alerts"][0]["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_without_users_and_image_there_is_neither_guard_nor_autoscaler() -> None:
    needy = {KUEUE, OPERATOR_WATCHDOG, SLOW_NODES}  # they need numbers, an image
    components = [name for name in COMPONENTS if name not in needy]
    assert [part.name for part in kit_parts(KitSettings())] == ["priorityclasses", "operator-role", *components]
