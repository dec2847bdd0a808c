"""How jobs end, by the version of the operator that cleans up after them."""

from typing import Any

import pytest
import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import ManifestPart
from hvd_elastic.mpijob.manifests import operator_role
from hvd_elastic.mpijob.manifests.writers import yaml_stream
from tests.mpijob.lint.overlay import CLEAN
from tests.mpijob.lint.rules_on import changed, findings

KUEUE = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}}}


@pytest.mark.parametrize(("version", "policy"), [("v2beta1", "All"), ("v1", "Running")])
def test_clean_up_keeps_the_launchers_log_in_either_version(version: str, policy: str) -> None:
    patch = {"apiVersion": f"kubeflow.org/{version}", "spec": {"runPolicy": {"cleanPodPolicy": "None"}}}
    after, _ = lint.fix(changed(ManifestPart.JOB, patch), lint.select_rules(["HE603"]))
    job: Any = after[-1].value
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == policy


@pytest.mark.parametrize("patch", [KUEUE, {"spec": {"runPolicy": {"suspend": True}}}])
def test_a_job_that_will_be_resumed_needs_a_right_that_the_files_may_bring(patch: Any) -> None:
    documents = changed(ManifestPart.JOB, patch)
    assert len(findings("HE608", documents)) == 1
    role, _ = lint.read(yaml_stream.dump(operator_role.manifests()))
    assert findings("HE608", [*documents, *role]) == []


def test_a_launcher_that_is_taken_away_spends_the_restarts_that_the_job_has() -> None:
    alone: Any = {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": {"spec": {"initContainers": []}}}}}}
    (found,) = findings("HE607", changed(ManifestPart.JOB, alone))
    assert "one of 3 restarts" in found.message
    default = {"spec": {"runPolicy": {"backoffLimit": None}, **alone["spec"]}}
    (found,) = findings("HE607", changed(ManifestPart.JOB, default))
    assert "one of 6 restarts" in found.message


def test_what_the_sidecar_owns_goes_with_the_job() -> None:
    documents = list(yaml.safe_load_all(CLEAN.read_text()))
    launcher = documents[-1]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    environment = launcher["initContainers"][0]["env"]
    environment[:] = [variable for variable in environment if variable["name"] != "HVD_ELASTIC_OWNED"]
    read, _ = lint.read(yaml_stream.dump(documents))
    (found,) = findings("HE610", read)
    assert "ServiceAccount fashion-discovery" in found.message
    path = "/api/v1/namespaces/default/serviceaccounts/fashion-discovery"
    environment.append({"name": "HVD_ELASTIC_OWNED", "value": path})
    read, _ = lint.read(yaml_stream.dump(documents))
    (found,) = findings("HE610", read)
    assert "ServiceAccount" not in found.message


def test_rights_are_found_by_their_labels() -> None:
    """No sidecar may own them, so those without the labels stay for good."""
    documents = list(yaml.safe_load_all(CLEAN.read_text()))
    for document in documents:
        if document["kind"] in {"Role", "RoleBinding"}:
            document["metadata"]["labels"]["app.kubernetes.io/part-of"] = "another"
    read, _ = lint.read(yaml_stream.dump(documents))
    (found,) = findings("HE610", read)
    assert found.message == "Role fashion-discovery, RoleBinding fashion-discovery will stay when the job is deleted"


def test_a_launcher_that_may_bind_others_to_its_role_is_told() -> None:
    documents = list(yaml.safe_load_all(CLEAN.read_text()))
    (role,) = (document for document in documents if document["kind"] == "Role")
    group, names = ["rbac.authorization.k8s.io"], ["fashion-discovery"]
    own = {"apiGroups": group, "resources": ["rolebindings"], "resourceNames": names, "verbs": ["get", "patch"]}
    role["rules"].append(own)
    read, _ = lint.read(yaml_stream.dump(documents))
    (found,) = findings("HE403", read)
    assert "rolebindings: get, patch" in found.message


def test_what_is_named_after_another_job_is_not_this_jobs() -> None:
    stream = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: NAME}
---
"""
    beside = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a-b-scripts}\n"
    read, _ = lint.read(stream.replace("NAME", "a") + stream.replace("NAME", "a-b") + beside)
    assert [found.value for found in findings("HE610", read)] == ["a-b"]


SHORT = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for taint in ("not-ready", "unreachable")
]
EVERYTHING: dict[str, Any] = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("tolerations", "fixed"),
    [
        ([EVERYTHING], [*SHORT, EVERYTHING]),  # with tolerationSeconds no pod may have it: HE922
        ([EVERYTHING | {"effect": "NoExecute"}], [EVERYTHING | {"effect": "NoExecute", "tolerationSeconds": 30}]),
        ([SHORT[0], EVERYTHING], [SHORT[1], SHORT[0], EVERYTHING]),
        ([*SHORT, EVERYTHING], [*SHORT, EVERYTHING]),  # the first that tolerates a taint counts
        ([SHORT[0]], SHORT),
    ],
)
def test_a_lost_node_is_left_soon_and_other_taints_are_tolerated_as_before(tolerations: Any, fixed: Any) -> None:
    documents = changed(ManifestPart.WORKER_POD, {"spec": {"tolerations": tolerations}})
    after, _ = lint.fix(documents, lint.select_rules(["HE602", "HE922"]))
    job: Any = after[-1].value
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["tolerations"] == fixed
    assert findings("HE602", after) == findings("HE922", after) == []
