"""Who may use the class that preempts training, and the one that inference cannot preempt: policies and quotas.

A PriorityClass is open to everyone who may create pods: whoever names that of inference takes GPUs from all training of
the cluster, and whoever names that of a floor keeps what he has. So does the label of a floor, by the class that it
brings: policies that validate see a pod as it is after those that change it. A ResourceQuota limits only the namespaces
that have one, and the API server's own switch for the others (`limitedResources` of its admission configuration, "Limit
Priority Class consumption by default" in Kubernetes' page on resource quotas) is out of reach on managed clusters. A
policy is not.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.priorityclasses.admission_policy import LABELS, AdmissionPolicy, cel_list, cel_text
from hvd_elastic.priorityclasses.classes import PriorityClass, Tier
from hvd_elastic.priorityclasses.problem import Problem

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ACCOUNT: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
GUARDED: Final = (Tier.INFERENCE, Tier.FLOOR)
"""The classes of which a pod has more than its share."""
_OPTIONS: Final = {Tier.INFERENCE: ("--allow", "--quota"), Tier.FLOOR: ("--allow-floor", "--quota-floor")}
_WHICH: Final = {Tier.INFERENCE: "which preempts training", Tier.FLOOR: "which inference cannot preempt"}
_SHAPE: Final = "write NAMESPACE or NAMESPACE/SERVICEACCOUNT, in lower-case letters, digits and '-'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUser:
    """Whose pods may have the class."""

    namespace: str
    tier: Tier = Tier.INFERENCE
    account: str = ""
    """The ServiceAccount as which the pods run. Empty: all pods of the namespace.

    Whoever may create pods in a namespace may have them run as any of its accounts. So an account tells workloads
    apart, not people.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassQuota:
    """How many GPUs of one resource the pods of the class may request in one namespace, all together."""

    namespace: str
    tier: Tier = Tier.INFERENCE
    gpus: int
    resource: str
    """What the cluster calls these GPUs: `nvidia.com/gpu`."""


def check_guard(users: Sequence[ClassUser], quotas: Sequence[ClassQuota]) -> Iterator[Problem]:
    """Every problem of a guard."""
    if not any(user.tier is Tier.INFERENCE for user in users):
        what = "is missing: with nobody allowed, inference itself could not start"
        yield Problem(path="--allow", value=..., what=what, way_out=_SHAPE)
    for user in users:
        if not _NAMESPACE.fullmatch(user.namespace) or (user.account and not _ACCOUNT.fullmatch(user.account)):
            what = "names no account and no namespace"
            yield Problem(path=_OPTIONS[user.tier][0], value=_name(user), what=what, way_out=_SHAPE)
    for tier in GUARDED:
        of_tier = [quota for quota in quotas if quota.tier is tier]
        yield from _check_quotas(tier, {user.namespace for user in users if user.tier is tier}, of_tier)


def _check_quotas(tier: Tier, allowed: Collection[str], quotas: Sequence[ClassQuota]) -> Iterator[Problem]:
    allow, path = _OPTIONS[tier]
    for quota in quotas:
        if not _NAMESPACE.fullmatch(quota.namespace) or quota.gpus < 0:
            value = f"{quota.namespace}={quota.gpus}"
            way_out = "write NAMESPACE=GPUS[:RESOURCE], for example serving=16"
            yield Problem(path=path, value=value, what="is not a number of GPUs of a namespace", way_out=way_out)
        if not _RESOURCE.fullmatch(quota.resource):
            what = "names no resource that nodes offer"
            yield Problem(path=path, value=quota.resource, what=what, way_out="write it as nodes do: amd.com/gpu")
    counted = Counter((quota.namespace, quota.resource) for quota in quotas)
    for namespace, resource in sorted(pair for pair, times in counted.items() if times > 1):
        what = f"is given {resource} more than once"
        yield Problem(path=path, value=namespace, what=what, way_out="give one number")
    for quota in quotas if allowed or tier is Tier.FLOOR else ():
        if quota.gpus > 0 and quota.namespace not in allowed:
            what = "has a quota, but its pods may not use the class"
            yield Problem(path=path, value=quota.namespace, what=what, way_out=f"add {allow} {quota.namespace}")


def guard_manifests(
    classes: Sequence[PriorityClass], users: Sequence[ClassUser], quotas: Sequence[ClassQuota]
) -> list[dict[str, Any]]:
    """For each class of GUARDED: a ResourceQuota for each namespace of `quotas`, the policy, and its binding.

    Nobody may use the class of a floor who is not named.
    """
    limits: dict[tuple[Tier, str], dict[str, str]] = {}
    for quota in quotas:
        limits.setdefault((quota.tier, quota.namespace), {})[f"requests.{quota.resource}"] = str(quota.gpus)
    return [
        manifest
        for one in classes
        if one.tier in GUARDED
        for manifest in (
            *(_quota(one, namespace, hard) for (tier, namespace), hard in limits.items() if tier is one.tier),
            *_policy(one, [user for user in users if user.tier is one.tier]).manifests(),
        )
    ]


def _quota(one: PriorityClass, namespace: str, hard: dict[str, str]) -> dict[str, Any]:
    """Extended resources may be counted by class (`validateResourceQuotaScopes` of Kubernetes 1.34)."""
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [one.name]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": one.name, "namespace": namespace, "labels": dict(LABELS)},
        "spec": {
            "hard": hard,
            "scopeSelector": {"matchExpressions": [scope]},
        },
    }


def _policy(one: PriorityClass, users: Sequence[ClassUser]) -> AdmissionPolicy:
    """Only creation is looked at: the class of a pod never changes, and a pod without one has its default by then.

    Not who creates is asked, for that is a controller, but where the pod is and as whom it runs.
    """
    namespaces = [user.namespace for user in users if not user.account]
    accounts = [_name(user) for user in users if user.account]
    uses = f"has(object.spec.priorityClassName) && object.spec.priorityClassName == {cel_text(one.name)}"
    account = "(has(object.spec.serviceAccountName) ? object.spec.serviceAccountName : 'default')"
    refusal = f" may not use the PriorityClass {one.name}, {_WHICH[one.tier]}: hvd-elastic priorityclasses --guard"
    return AdmissionPolicy(
        name=f"{one.name}.hvd-elastic.dev",
        group="",
        versions=["v1"],
        resource="pods",
        operation="CREATE",
        condition=("has-the-class", uses),
        variables={"account": f"request.namespace + '/' + {account}"},
        allowed=[f"request.namespace in {cel_list(namespaces)} || variables.account in {cel_list(accounts)}"],
        refusal=f"variables.account + {cel_text(refusal)}",
    )


def _name(user: ClassUser) -> str:
    return f"{user.namespace}/{user.account}" if user.account else user.namespace
