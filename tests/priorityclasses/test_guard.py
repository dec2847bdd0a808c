"""Who may use the class of inference: the policy's expressions, evaluated by the library that the API server uses."""

from collections.abc import Mapping
from typing import Any

import pytest

from hvd_elastic.priorityclasses import DEFAULTS, ClassQuota, ClassUser, Tier, check_guard, guard_manifests
from testbed import admission_policies
from tests.mpijob import admission

USERS = (ClassUser(namespace="serving"), ClassUser(namespace="batch", account="scorer"))
GPU = "nvidia.com/gpu"
QUOTAS = (ClassQuota(namespace="serving", gpus=16, resource=GPU),)

Manifest = Mapping[str, Any]


def of_kind(kind: str, users: tuple[ClassUser, ...] = USERS, *, of: str = "inference-pc") -> Manifest:
    made = guard_manifests(DEFAULTS, users, QUOTAS)
    (found,) = (one for one in made if one["kind"] == kind and one["metadata"]["name"].startswith(of))
    return found


def refusal(policy: Manifest, namespace: str, pod: Mapping[str, Any]) -> str:
    """What the API server answers to whoever creates the pod; empty: it is admitted."""
    return admission_policies.refusal(policy, object={"spec": pod}, request={"namespace": namespace})


@pytest.mark.parametrize(
    ("namespace", "account", "allowed"),
    [
        ("serving", "default", True),
        ("serving", "anything", True),
        ("batch", "scorer", True),
        ("batch", "default", False),
        ("batch", None, False),
        ("research", "scorer", False),
        ("serving-2", "default", False),
    ],
)
def test_only_who_is_named_may_use_the_class(namespace: str, account: str | None, allowed: bool) -> None:
    pod = {"priorityClassName": "inference-pc"} | ({"serviceAccountName": account} if account else {})
    said = refusal(of_kind("ValidatingAdmissionPolicy"), namespace, pod)
    if allowed:
        assert said == ""
    else:
        assert said.startswith(f"{namespace}/{account or 'default'} may not use the PriorityClass inference-pc")


@pytest.mark.parametrize(
    "pod", [{}, {"priorityClassName": "preemptible-pc"}, {"priorityClassName": "system-node-critical"}]
)
def test_pods_of_other_classes_are_nobody_s_business(pod: dict[str, str]) -> None:
    assert refusal(of_kind("ValidatingAdmissionPolicy"), "research", pod) == ""


@pytest.mark.parametrize("user", USERS)
def test_one_list_may_be_empty(user: ClassUser) -> None:
    policy = of_kind("ValidatingAdmissionPolicy", (user,))
    pod = {"priorityClassName": "inference-pc", "serviceAccountName": "scorer"}
    for namespace in ("serving", "batch", "research"):
        assert bool(refusal(policy, namespace, pod)) is (namespace != user.namespace)


def test_what_cannot_be_judged_is_refused_and_the_binding_denies() -> None:
    policy, binding = of_kind("ValidatingAdmissionPolicy"), of_kind("ValidatingAdmissionPolicyBinding")
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_they_are_admitted() -> None:
    manifests = guard_manifests(DEFAULTS, USERS, QUOTAS)
    assert [error for one in manifests for error in admission.errors(one)] == []
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in manifests]
    assert len(set(names)) == len(names) == 5


def test_nobody_may_use_the_floor_who_is_not_named() -> None:
    pod = {"priorityClassName": "floor-pc"}
    nobody = of_kind("ValidatingAdmissionPolicy", of="floor-pc")
    assert "may not use the PriorityClass floor-pc, which inference cannot preempt" in refusal(nobody, "serving", pod)
    users = (*USERS, ClassUser(namespace="research", tier=Tier.FLOOR))
    policy = of_kind("ValidatingAdmissionPolicy", users, of="floor-pc")
    assert refusal(policy, "research", pod) == ""
    assert refusal(policy, "serving", pod)
    assert refusal(of_kind("ValidatingAdmissionPolicy", users), "research", {"priorityClassName": "inference-pc"})


def test_a_quota_of_the_floor_counts_its_class() -> None:
    users = (*USERS, ClassUser(namespace="research", tier=Tier.FLOOR))
    quotas = (*QUOTAS, ClassQuota(namespace="research", tier=Tier.FLOOR, gpus=2, resource=GPU))
    assert not [*check_guard(users, quotas)]
    made = guard_manifests(DEFAULTS, users, quotas)
    found = {one["metadata"]["name"]: one for one in made if one["kind"] == "ResourceQuota"}
    assert found["floor-pc"]["spec"]["hard"] == {"requests.nvidia.com/gpu": "2"}
    assert found["floor-pc"]["spec"]["scopeSelector"]["matchExpressions"][0]["values"] == ["floor-pc"]


def test_a_quota_counts_the_gpus_of_the_class_alone() -> None:
    spec = of_kind("ResourceQuota")["spec"]
    (scope,) = spec["scopeSelector"]["matchExpressions"]
    assert spec["hard"] == {"requests.nvidia.com/gpu": "16"}
    assert (scope["scopeName"], scope["values"]) == ("PriorityClass", ["inference-pc"])


def test_a_namespace_has_one_quota_for_all_that_its_gpus_are_called() -> None:
    quotas = (*QUOTAS, ClassQuota(namespace="serving", gpus=8, resource="amd.com/gpu"))
    assert not [*check_guard(USERS, quotas)]
    (quota,) = [one for one in guard_manifests(DEFAULTS, USERS, quotas) if one["kind"] == "ResourceQuota"]
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "16", "requests.amd.com/gpu": "8"}


@pytest.mark.parametrize(
    ("users", "quotas", "what"),
    [
        ((), (), "inference itself could not start"),
        ((ClassUser(namespace="Serving"),), (), "names no account and no namespace"),
        ((ClassUser(namespace="a'] || true || ['"),), (), "names no account and no namespace"),
        ((ClassUser(namespace="a", account="b'"),), (), "names no account and no namespace"),
        (USERS, (ClassQuota(namespace="serving", gpus=-1, resource=GPU),), "is not a number of GPUs"),
        (USERS, QUOTAS * 2, "more than once"),
        (USERS, (ClassQuota(namespace="serving", gpus=1, resource="gpu"),), "names no resource"),
        (USERS, (ClassQuota(namespace="research", gpus=1, resource=GPU),), "its pods may not use the class"),
        (USERS, (ClassQuota(namespace="x", tier=Tier.FLOOR, gpus=1, resource=GPU),), "add --allow-floor x"),
        ((ClassUser(namespace="a", tier=Tier.FLOOR),), (), "inference itself could not start"),
    ],
)
def test_a_guard_that_guards_nothing_or_too_much(
    users: tuple[ClassUser, ...], quotas: tuple[ClassQuota, ...], what: str
) -> None:
    (problem,) = check_guard(users, quotas)
    assert what in str(problem)


def test_a_quota_of_nothing_needs_no_user() -> None:
    assert not [*check_guard(USERS, (ClassQuota(namespace="research", gpus=0, resource=GPU),))]
