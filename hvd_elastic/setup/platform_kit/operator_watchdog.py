"""The MPI Operator's watchdog in a cluster: it reads jobs, workers and Events, and may restart one Deployment.

RBAC lets it patch that Deployment, whole. A policy narrows that to the annotation that `kubectl rollout restart` sets.
"""

from typing import Any, Final

from hvd_elastic.decide.controller_pod import ALIVE, ControllerPod
from hvd_elastic.decide.watchdog.watchdog import RESTARTED
from hvd_elastic.mpijob.manifests.manifest_parts import role_and_binding
from hvd_elastic.priorityclasses.admission_policy import cel_text
from hvd_elastic.setup.platform_kit.field_policy import field_policy

NAME: Final = "hvd-elastic-watchdog"
DEPLOYMENT: Final = "mpi-operator"
"""As the operator's own manifests name it (`deploy/v2beta1/mpi-operator.yaml`)."""

_READS: Final = (
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
)
_RESTARTS: Final = (
    {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": [DEPLOYMENT], "verbs": ["get", "patch"]},
)


def manifests(*, image: str, operator_namespace: str) -> list[dict[str, Any]]:
    """In the order in which they are applied. It runs beside the operator."""
    command = ["hvd-elastic", "operator-watchdog", "--alive-file", ALIVE, "--operator-namespace", operator_namespace]
    pod = ControllerPod(
        name=NAME, namespace=operator_namespace, container="watchdog", image=image, command=command, replicas=1
    )
    account = f"system:serviceaccount:{operator_namespace}:{NAME}"
    policy = field_policy(
        name="operator-watchdog.hvd-elastic.dev",
        resource=("apps", "deployments"),
        condition=("is-the-watchdog", f"request.userInfo.username == {cel_text(account)}"),
        may_change={"spec": {"template": {"metadata": {"annotations": {RESTARTED: {}}}}}},
        refusal=f" may change nothing of a Deployment but {RESTARTED}: hvd-elastic platform-kit",
    )
    return [
        pod.account(),
        *role_and_binding(pod.meta(), _READS, account=NAME, namespace=operator_namespace),
        *role_and_binding(
            pod.meta(namespace=operator_namespace), _RESTARTS, account=NAME, namespace=operator_namespace
        ),
        *policy.manifests(),
        pod.policy(),
        pod.deployment(),
    ]
