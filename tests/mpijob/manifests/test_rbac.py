import json
from typing import Any

import pytest

from hvd_elastic.mpijob.contract import ENV_OWNED
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting import rbac
from tests.mpijob.jobs import job, one, pods


def test_discovery_may_do_what_it_does_and_no_more() -> None:
    watching, reaping, *rules = one(job(workers="1:3"), "Role")["rules"]
    assert watching == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    assert (reaping["resources"], reaping["verbs"]) == (["pods"], ["delete"])
    assert reaping["resourceNames"] == ["fashion-worker-0", "fashion-worker-1", "fashion-worker-2"]
    rights = {(rule["apiGroups"][0], rule["resources"][0]): rule for rule in rules}
    assert set(rights["", "events"]["verbs"]) == {"list", "create"}
    assert rights["kubeflow.org", "mpijobs"]["resourceNames"] == ["fashion"]
    assert set(rights["kubeflow.org", "mpijobs"]["verbs"]) == {"get", "list", "watch", "patch"}
    own = {
        resource: rule["resourceNames"]
        for (_, resource), rule in rights.items()
        if rule["verbs"][:2] == ["get", "patch"]
    }
    assert own == {
        "jobs": ["fashion-launcher"],
        "configmaps": ["fashion-ledger"],
        "serviceaccounts": ["fashion-discovery"],
        "networkpolicies": ["fashion", "fashion.api-server"],
    }
    assert len(rules) == len(own) + 2


@pytest.mark.parametrize("target", [Target.MPIJOB, Target.MPIJOB_V1])
def test_what_the_token_changes_is_named_one_by_one_and_none_of_it_gives_rights(target: Target) -> None:
    """Whoever may patch a RoleBinding and has its rights may bind others to them."""
    spec = job(monitor=True, disruption_budget=True, read_nodes=True, output="results")
    rules = [rule for one in render(spec, target) if one["kind"].endswith("Role") for rule in one["rules"]]
    assert rules
    for rule in rules:
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        assert not {"*", "bind", "escalate", "impersonate", "update"} & set(rule["verbs"])
        assert "resourceNames" in rule or "patch" not in rule["verbs"], rule


def test_what_a_job_does_not_use_its_sidecar_may_not_touch() -> None:
    """Each optional object brings the right to own it."""

    def touched(**keys: Any) -> set[str]:
        return {resource for rule in one(job(**keys), "Role")["rules"] for resource in rule["resources"]}

    assert touched(monitor=True) - touched() == {"podmonitors"}
    assert touched(disruption_budget=True) - touched() == {"poddisruptionbudgets"}
    assert touched() - touched(network={"policy": False}) == {"networkpolicies"}


def test_a_role_that_names_every_worker_can_be_applied_from_a_client() -> None:
    """`kubectl apply` writes the object into an annotation, as JSON in JSON, and 256 KiB are the most."""
    index = len(f"-worker-{rbac.MOST_NAMED_WORKERS - 1}")
    spec = job(name="j" * (63 - index), workers=f"1:{rbac.MOST_NAMED_WORKERS}")
    role = one(spec, "Role")
    (reaping,) = (rule for rule in role["rules"] if rule["verbs"] == ["delete"])
    assert len(reaping["resourceNames"]) == rbac.MOST_NAMED_WORKERS
    assert len(json.dumps(json.dumps(role))) < (256 << 10) / 2


def test_beyond_that_the_right_is_wide() -> None:
    rules = one(job(workers=f"1:{rbac.MOST_NAMED_WORKERS + 1}"), "Role")["rules"]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]} in rules


def test_everything_beside_the_job_goes_with_it() -> None:
    """But for storage, for what has no namespace, and for what the MPIJob itself owns: the ledger, and the rights."""
    spec = job(monitor=True, disruption_budget=True, read_nodes=True)
    emitted = [item for item in render(spec) if item["kind"] not in ("MPIJob", "PersistentVolumeClaim", "ConfigMap")]
    pod, _ = pods(spec)
    owned = next(item["value"] for item in pod["initContainers"][0]["env"] if item["name"] == ENV_OWNED).split()
    expected = [item for item in emitted if not item["kind"].endswith(("Role", "RoleBinding"))]
    assert sorted(path.rpartition("/")[2] for path in owned) == sorted(item["metadata"]["name"] for item in expected)
    allowed = {
        (group, resource, name)
        for rule in one(spec, "Role")["rules"]
        if rule["verbs"] == ["get", "patch"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule["resourceNames"]
    }
    for path in owned:
        *_, version, namespaces, namespace, plural, name = path.split("/")
        assert (version, namespaces, namespace) == ("v1", "namespaces", spec.namespace)
        group = "" if path.startswith("/api/v1/") else path.split("/")[2]
        assert (group, plural, name) in allowed


def test_rights_end_at_the_namespace() -> None:
    kinds = {manifest["kind"] for manifest in render(job())}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding"}
    spec = job(namespace="team", read_nodes=True)
    assert one(spec, "RoleBinding")["subjects"] == [
        {"kind": "ServiceAccount", "name": "fashion-discovery", "namespace": "team"}
    ]
    assert one(spec, "ClusterRole")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    ]
    assert one(spec, "ClusterRole")["metadata"]["name"] == "team.fashion.node-reader"


def test_the_launcher_runs_as_that_account() -> None:
    launcher, worker = pods(job())
    assert launcher["serviceAccountName"] == one(job(), "ServiceAccount")["metadata"]["name"]
    assert "serviceAccountName" not in worker


@pytest.mark.parametrize("target", list(Target))
def test_everything_is_in_the_namespace_of_the_job(target: Target) -> None:
    for manifest in render(job(namespace="team"), target):
        assert manifest["metadata"]["namespace"] == "team"


@pytest.mark.parametrize("target", [Target.MPIJOB, Target.MPIJOB_V1])
def test_a_second_apply_cannot_empty_the_ledger(target: Target) -> None:
    """It has no data, so nobody who applies it owns any."""
    (ledger,) = (one for one in render(job(), target) if one["metadata"]["name"] == "fashion-ledger")
    assert (ledger["kind"], set(ledger)) == ("ConfigMap", {"apiVersion", "kind", "metadata"})
    rules = one(job(), "Role", target)["rules"]
    (rule,) = (rule for rule in rules if rule["resources"] == ["configmaps"])
    assert (rule["resourceNames"], rule["verbs"]) == (["fashion-ledger"], ["get", "patch", "create"])


def test_the_legacy_launcher_has_few_rights_in_reach_of_its_open_port() -> None:
    """A pod has one account: what discovery may do there, the launcher's container may do, too."""
    spec = job(name="fashion", workers="1:3", disruption_budget=True, monitor=True)
    role = one(spec, "Role", Target.MPIJOB_V1)
    assert one(spec, "RoleBinding", Target.MPIJOB_V1)["subjects"][0]["name"] == "fashion-launcher"
    granted = {
        (resource, verb, name)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ["*"])
    }
    reads = {(resource, verb, "*") for resource, verbs in {"pods": ["list", "watch"]}.items() for verb in verbs}
    changes = {right for right in granted - reads if right[1] not in {"get", "list", "watch"}}
    assert changes == {
        *(("pods", "delete", f"fashion-worker-{index}") for index in range(3)),
        ("events", "create", "*"),
        ("configmaps", "patch", "fashion-ledger"),
        ("configmaps", "create", "fashion-ledger"),
    }
    assert {name for resource, _, name in granted if resource == "mpijobs"} == {"fashion"}


def test_the_legacy_launcher_reads_nodes_only_if_asked_to() -> None:
    spec = job(read_nodes=True)
    (rule,) = one(spec, "ClusterRole", Target.MPIJOB_V1)["rules"]
    assert (rule["resources"], rule["verbs"]) == (["nodes"], ["get", "list", "watch"])
