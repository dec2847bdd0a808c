"""Who may use the class that preempts training: a ValidatingAdmissionPolicy, and a quota for each namespace.

A PriorityClass is open to everyone who may create pods: whoever names it takes GPUs from all training of the cluster. A
ResourceQuota limits only the namespaces that have one, and the API server's own switch for the others
(`limitedResources` of its admission configuration, "Limit Priority Class consumption by default" in Kubernetes' page on
resource quotas) is out of reach on managed clusters. A policy is not.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.priorityclasses.admission_policy import LABELS, AdmissionPolicy, cel_list, cel_text
from hvd_elastic.priorityclasses.classes import PreemptionPolicy, PriorityClass
from hvd_elastic.priorityclasses.problem import Problem

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ACCOUNT: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_SHAPE: Final = "write NAMESPACE or NAMESPACE/SERVICEACCOUNT, in lower-case letters, digits and '-'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUser:
    """Whose pods may have the class."""

    namespace: str
    account: str = ""
    """The ServiceAccount as which the pods run. Empty: all pods of the namespace.

    Whoever may create pods in a namespace may have them run as any of its accounts. So an account tells workloads
    apart, not people.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassQuota:
    """How many GPUs of one resource the pods of the class may request in one namespace, all together."""

    namespace: str
    gpus: int
    resource: str
    """What the cluster calls these GPUs: `nvidia.com/gpu`."""


def check_guard(users: Sequence[ClassUser], quotas: Sequence[ClassQuota]) -> Iterator[Problem]:
    """Every problem of a guard."""
    if not users:
        what = "is missing: with nobody allowed, inference itself could not start"
        yield Problem(path="--allow", value=..., what=what, way_out=_SHAPE)
    for user in users:
        if not _NAMESPACE.fullmatch(user.namespace) or (user.account and not _ACCOUNT.fullmatch(user.account)):
            yield Problem(path="--allow", value=_name(user), what="names no account and no namespace", way_out=_SHAPE)
    for quota in quotas:
        if not _NAMESPACE.fullmatch(quota.namespace) or quota.gpus < 0:
            value = f"{quota.namespace}={quota.gpus}"
            way_out = "write NAMESPACE=GPUS[:RESOURCE], for example serving=16"
            yield Problem(path="--quota", value=value, what="is not a number of GPUs of a namespace", way_out=way_out)
        if not _RESOURCE.fullmatch(quota.resource):
            what = "names no resource that nodes offer"
            yield Problem(path="--quota", value=quota.resource, what=what, way_out="write it as nodes do: amd.com/gpu")
    counted = Counter((quota.namespace, quota.resource) for quota in quotas)
    for namespace, resource in sorted(pair for pair, times in counted.items() if times > 1):
        what = f"is given {resource} more than once"
        yield Problem(path="--quota", value=namespace, what=what, way_out="give one number")
    allowed = {user.namespace for user in users}
    for quota in quotas if users else ():
        if quota.gpus > 0 and quota.namespace not in allowed:
            what = "has a quota, but its pods may not use the class"
            yield Problem(path="--quota", value=quota.namespace, what=what, way_out=f"add --allow {quota.namespace}")


def guard_manifests(
    classes: Sequence[PriorityClass], users: Sequence[ClassUser], quotas: Sequence[ClassQuota]
) -> list[dict[str, Any]]:
    """For each class that preempts: a ResourceQuota for each namespace of `quotas`, the policy, and its binding."""
    preempting = [one for one in classes if one.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY]
    limits: dict[str, dict[str, str]] = {}
    for quota in quotas:
        limits.setdefault(quota.namespace, {})[f"requests.{quota.resource}"] = str(quota.gpus)
    return [
        manifest
        for one in preempting
        for manifest in (*(_quota(one, *limit) for limit in limits.items()), *_policy(one, users).manifests())
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
    refusal = f" may not use the PriorityClass {one.name}, which preempts training: hvd-elastic priorityclasses --guard"
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
