"""The autoscaler in a cluster: an account with its own rights and no more, and a Deployment. Of its two replicas the
second one takes over when the first is gone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from hvd_elastic.client.connection.known_api import CAPACITY_BUFFERS
from hvd_elastic.decide.autoscale.demand_store import DEMAND_NAME
from hvd_elastic.decide.autoscale.leadership import LEASE_NAME
from hvd_elastic.decide.controller_pod import ALIVE, ControllerPod
from hvd_elastic.mpijob.manifests.manifest_parts import role_and_binding

NAME: Final = "hvd-elastic-autoscaler"
_CLUSTER_RULES: Final = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]},
    {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["list"]},
    {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["get"]},
    {"apiGroups": [CAPACITY_BUFFERS.group], "resources": ["capacitybuffers"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get"]},
)
_JOB_RULES: Final = (
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["list", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
)
_OWN_RULES: Final = tuple(
    {"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": ["get", "patch"]}
    for group, resource, name in (("coordination.k8s.io", "leases", LEASE_NAME), ("", "configmaps", DEMAND_NAME))
)


def manifests(
    *,
    image: str,
    namespace: str,
    of_jobs: Sequence[str] = (),
    buffer: str | None = None,
    arguments: Sequence[str] = (),
    replicas: int = 2,
) -> list[dict[str, Any]]:
    """In the order in which they are applied.

    Args:
        image: with the command.
        namespace: where it runs.
        of_jobs: their namespaces; none: all.
        buffer: `NAMESPACE/NAME` of the CapacityBuffer that follows the reserve; None: none does.
        arguments: of the verb, beside these.
        replicas: of the Deployment.
    """
    granted = partial(role_and_binding, account=NAME, namespace=namespace)
    wide = [*_CLUSTER_RULES, *([] if of_jobs else _JOB_RULES)]
    chosen = [word for name in of_jobs for word in ("--namespace", name)]
    chosen += ["--buffer", buffer] if buffer else []
    command = ["hvd-elastic", "autoscale", "--alive-file", ALIVE, *chosen, *arguments]
    pod = ControllerPod(
        name=NAME, namespace=namespace, container="autoscaler", image=image, command=command, replicas=replicas
    )
    return [
        pod.account(),
        *granted(pod.meta(), wide),
        *(one for name in of_jobs for one in granted(pod.meta(namespace=name), _JOB_RULES)),
        *granted(pod.meta(namespace=namespace, suffix="-own"), _OWN_RULES),
        *(_right_to_follow(pod, buffer) if buffer else ()),
        *_own_objects(pod),
        pod.policy(),
        pod.deployment(),
    ]


def _right_to_follow(pod: ControllerPod, buffer: str) -> list[dict[str, Any]]:
    """The right to change the one buffer that follows the reserve."""
    namespace, _, name = buffer.partition("/")
    rule = {
        "apiGroups": [CAPACITY_BUFFERS.group],
        "resources": ["capacitybuffers"],
        "resourceNames": [name],
        "verbs": ["patch"],
    }
    meta = pod.meta(namespace=namespace, suffix="-buffer")
    return list(role_and_binding(meta, [rule], account=NAME, namespace=pod.namespace))


def _own_objects(pod: ControllerPod) -> list[dict[str, Any]]:
    """Its Lease and its ConfigMap, empty: RBAC cannot narrow `create` to a name. What is in them stays when they are
    applied again.
    """
    return [
        {"apiVersion": version, "kind": kind, "metadata": {**pod.meta(namespace=pod.namespace), "name": name}}
        for version, kind, name in (
            ("coordination.k8s.io/v1", "Lease", LEASE_NAME),
            ("v1", "ConfigMap", DEMAND_NAME),
        )
    ]
