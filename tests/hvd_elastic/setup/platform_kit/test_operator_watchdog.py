"""What the watchdog may do: read, and restart one Deployment."""

import copy
from typing import Any

import pytest

from hvd_elastic.setup.platform_kit.operator_watchdog import manifests
from testbed import admission_policies
from tests.hvd_elastic.setup.platform_kit.test_mpijob_guard import merged

MADE = manifests(image="registry.example.com/hvd:1", operator_namespace="kubeflow")
ACCOUNT = "system:serviceaccount:kubeflow:hvd-elastic-watchdog"
RESTART = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
OPERATOR: dict[str, Any] = {
    "metadata": {"name": "mpi-operator", "namespace": "kubeflow", "resourceVersion": "7", "labels": {"app": "a"}},
    "spec": {
        "replicas": 1,
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"image": "a"}]}},
    },
}


def refusal(change: dict[str, Any], *, user: str = ACCOUNT, before: dict[str, Any] = OPERATOR) -> str:
    """What the API server answers; empty: it is admitted."""
    after = merged(before, change)
    after["metadata"] |= {"generation": 2, "managedFields": [{"manager": "somebody"}]}
    request = {"namespace": "kubeflow", "name": "mpi-operator", "userInfo": {"username": user}}
    (policy,) = (one for one in MADE if one["kind"] == "ValidatingAdmissionPolicy")
    return admission_policies.refusal(policy, request=request, object=after, oldObject=before)


def test_it_reads_and_changes_one_deployment() -> None:
    rules = [rule for one in MADE for rule in one.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "patch"}
    (changing,) = (rule for rule in rules if "patch" in rule["verbs"])
    assert (changing["resources"], changing["resourceNames"]) == (["deployments"], ["mpi-operator"])


def test_it_may_restart_the_operator_for_the_first_time_and_again() -> None:
    assert refusal(RESTART) == ""
    before = merged(copy.deepcopy(OPERATOR), RESTART)
    before["spec"]["template"]["metadata"]["annotations"] |= {"kubectl.kubernetes.io/restartedAt": "then", "a": "b"}
    assert refusal(RESTART, before=before) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"template": {"spec": {"containers": [{"image": "evil"}]}}}},
        {"spec": {"template": {"metadata": {"annotations": {"another": "b"}}}}},
        {"spec": {"template": {"metadata": {"labels": {"app": "b"}}}}},
        {"spec": {"replicas": 0}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"labels": {"app": "b"}}},
    ],
    ids=str,
)
def test_it_may_do_nothing_else_to_it(change: dict[str, Any]) -> None:
    assert refusal(change).startswith(f"{ACCOUNT} may change nothing of a Deployment but ")
    assert refusal(merged(change, RESTART))
    assert refusal(change, user="ann@example.com") == ""
