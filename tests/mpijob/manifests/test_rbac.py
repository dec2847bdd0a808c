import pytest

from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.render import render
from tests.mpijob.jobs import job, one, pods


def test_discovery_may_do_what_it_does_and_no_more() -> None:
    rules = one(job(), "Role")["rules"]
    rights = {(rule["apiGroups"][0], rule["resources"][0]): rule for rule in rules}
    assert set(rights["", "pods"]["verbs"]) == {"get", "list", "watch", "delete"}
    assert set(rights["", "events"]["verbs"]) == {"create", "patch"}
    assert rights["kubeflow.org", "mpijobs"]["resourceNames"] == ["fashion"]
    assert set(rights["kubeflow.org", "mpijobs"]["verbs"]) == {"get", "list", "watch", "patch"}
    assert len(rules) == 3


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
