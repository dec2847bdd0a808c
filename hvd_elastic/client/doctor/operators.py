"""Who drives MPIJobs in a cluster: accounts, the Deployments that run as them, their releases."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, ServiceAccount

_TRAINING_OPERATOR: Final = "training-operator"
"""It drives MPIJobs of the version v1, never of v2beta1."""


def operator_accounts(
    roles: Mapping[str, Mapping[str, Any]], bindings: Sequence[Mapping[str, Any]]
) -> list[ServiceAccount]:
    """ServiceAccounts that may, by name, write an MPIJob's status and create pods: whoever drives MPIJobs has to.

    Kueue's manager writes the status as well, and creates no pod (its `config/components/rbac/role.yaml`).
    """
    found = (_accounts_with(may, roles, bindings) for may in (_writes_status, _creates_pods))
    return sorted(set.intersection(*found), key=str)


def _accounts_with(
    may: Callable[[Mapping[str, Any]], bool],
    roles: Mapping[str, Mapping[str, Any]],
    bindings: Sequence[Mapping[str, Any]],
) -> set[ServiceAccount]:
    granting = {name for name, role in roles.items() if any(may(rule) for rule in role.get("rules") or ())}
    return {
        ServiceAccount(namespace=subject.get("namespace", ""), name=subject["name"])
        for binding in bindings
        if binding["roleRef"]["name"] in granting
        for subject in binding.get("subjects") or ()
        if subject["kind"] == "ServiceAccount"
    }


def _writes_status(rule: Mapping[str, Any]) -> bool:
    return _grants(rule, group="kubeflow.org", resource="mpijobs/status", verb="update")


def _creates_pods(rule: Mapping[str, Any]) -> bool:
    return _grants(rule, group="", resource="pods", verb="create")


def _grants(rule: Mapping[str, Any], *, group: str, resource: str, verb: str) -> bool:
    """Whether a rule names the group and the resource; whoever may do everything drives nothing for that."""
    named = group in rule.get("apiGroups", ()) and resource in rule.get("resources", ())
    return named and bool({verb, "*"} & set(rule.get("verbs", ())))


def deployment_of(account: ServiceAccount, facts: ClusterFacts) -> Mapping[str, Any] | None:
    """The Deployment that runs as this account. None: it runs in another way, or outside the cluster."""
    for deployment in facts.deployments:
        pod = deployment["spec"]["template"]["spec"]
        if deployment["metadata"]["namespace"] == account.namespace and pod.get("serviceAccountName") == account.name:
            return deployment
    return None


def images(deployment: Mapping[str, Any]) -> list[str]:
    """Images of its containers."""
    return [str(container["image"]) for container in deployment["spec"]["template"]["spec"]["containers"]]


def arguments(deployment: Mapping[str, Any]) -> list[str]:
    """Commands and arguments of its containers."""
    return [
        str(argument)
        for container in deployment["spec"]["template"]["spec"]["containers"]
        for argument in [*container.get("command", ()), *container.get("args", ())]
    ]


def operators(facts: ClusterFacts) -> Iterator[tuple[ServiceAccount, Mapping[str, Any] | None]]:
    """Whoever drives MPIJobs of the version v2beta1."""
    for account in operator_accounts(facts.cluster_roles, facts.cluster_role_bindings):
        deployment = deployment_of(account, facts)
        if deployment is None or not any(_TRAINING_OPERATOR in image for image in images(deployment)):
            yield account, deployment


def release_of(deployment: Mapping[str, Any] | None) -> tuple[int, int] | None:
    """(0, 8) of the image `mpioperator/mpi-operator:v0.8.2` or `:0.8.2`. None if the tag is another one."""
    for image in images(deployment) if deployment else ():
        if found := re.search(r":v?(\d+)\.(\d+)", image):
            return int(found[1]), int(found[2])
    return None
