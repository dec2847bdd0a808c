"""`view` and `edit` with what the kit adds to them are enough for a job."""

import json

from hvd_elastic.client.connection.cluster_errors import error_of
from hvd_elastic.client.connection.people_roles import EDIT, VIEW, manifests, role_with
from hvd_elastic.client.doctor.fact_reader import NEEDED_RIGHTS
from hvd_elastic.mpijob.contract import LABEL_PART_OF
from hvd_elastic.mpijob.manifests.render import render
from tests.mpijob.jobs import job

READ, WRITE = {"get", "list", "watch"}, {"create", "delete", "patch", "update"}
KUBERNETES_OWN = {
    ("", "pods"): READ | WRITE,
    ("", "pods/log"): READ,
    ("", "events"): READ | WRITE,
    ("", "configmaps"): READ | WRITE,
    ("", "serviceaccounts"): READ | WRITE,
    ("batch", "jobs"): READ | WRITE,
    ("networking.k8s.io", "networkpolicies"): READ | WRITE,
    ("policy", "poddisruptionbudgets"): READ | WRITE,
}
"""Of `edit` (`testdata/cluster-roles.yaml` in Kubernetes' `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`)."""


def has_edit(group: str, resource: str, verb: str) -> bool:
    return verb in KUBERNETES_OWN.get((group, resource), set()) or bool(
        role_with(group=group, resource=resource, verb=verb)
    )


def test_who_has_edit_may_do_all_that_a_job_needs() -> None:
    assert [right for right in NEEDED_RIGHTS if not has_edit(right.group, right.resource, right.verb)] == []


def test_who_has_edit_has_what_he_gives_to_the_sidecar() -> None:
    """The API server refuses a Role with more than that."""
    (role,) = [one for one in render(job(monitor=True, disruption_budget=True)) if one["kind"] == "Role"]
    lacking = [
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not has_edit(group, resource, verb)
    ]
    assert lacking == []


def test_each_role_joins_the_one_of_its_name() -> None:
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in manifests()}
    assert labels[VIEW]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert labels[EDIT]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert not any(LABEL_PART_OF in one for one in labels.values())
    assert {verb for one in manifests()[:1] for rule in one["rules"] for verb in rule["verbs"]} == READ


def test_a_refusal_names_the_role_and_who_would_have_it() -> None:
    said = 'User "ann" cannot list resource "mpijobs" in API group "kubeflow.org" in the namespace "team"'
    told = str(error_of(403, json.dumps({"message": said}).encode(), method="GET", path="/", server=""))
    assert told.endswith("and so does hvd-elastic-view of hvd-elastic platform-kit to all who have view")
    other = said.replace("mpijobs", "nodes").replace("kubeflow.org", "")
    assert "platform-kit" not in str(
        error_of(403, json.dumps({"message": other}).encode(), method="", path="", server="")
    )
