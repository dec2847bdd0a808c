"""What keeps workers off slow nodes, in a cluster: it reads jobs, workers and nodes, and changes one thing of a job.

RBAC lets it patch MPIJobs, whole. A policy narrows that to the exclusion: at most so many nodes, in each required term
of the workers' node affinity, and the annotation that names them. All else of these terms must stay.
"""

from dataclasses import replace
from typing import Any, Final

from hvd_elastic.decide.controller_pod import ALIVE, ControllerPod
from hvd_elastic.discovery.kube.node_exclusion import HOSTNAME, MOST_NODES, REQUIRED
from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES
from hvd_elastic.mpijob.manifests.manifest_parts import role_and_binding
from hvd_elastic.priorityclasses.admission_policy import AdmissionPolicy, cel_text
from hvd_elastic.setup.platform_kit.field_policy import field_policy

NAME: Final = "hvd-elastic-slow-nodes"
_RULES: Final = (
    {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["list", "patch"]},
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]},
)
_TERMS: Final = ("mpiReplicaSpecs", "Worker", "template", "spec", "affinity", "nodeAffinity", REQUIRED)
"""Where a job's spec has the terms."""


def manifests(*, image: str, namespace: str) -> list[dict[str, Any]]:
    """In the order in which they are applied. `namespace`: where it runs."""
    command = ["hvd-elastic", "slow-nodes", "--alive-file", ALIVE]
    pod = ControllerPod(
        name=NAME, namespace=namespace, container="slow-nodes", image=image, command=command, replicas=1
    )
    return [
        pod.account(),
        *role_and_binding(pod.meta(), _RULES, account=NAME, namespace=namespace),
        *_policy(f"system:serviceaccount:{namespace}:{NAME}").manifests(),
        pod.policy(),
        pod.deployment(),
    ]


def _policy(account: str) -> AdmissionPolicy:
    terms: dict[str, Any] = {"nodeSelectorTerms": {}}
    for key in reversed(_TERMS):
        terms = {key: terms}
    fields = field_policy(
        name="slow-nodes.hvd-elastic.dev",
        resource=("kubeflow.org", "mpijobs"),
        condition=("is-slow-nodes", f"request.userInfo.username == {cel_text(account)}"),
        may_change={"metadata": {"annotations": {ANNOTATION_EXCLUDED_NODES: {}}}, "spec": terms},
        refusal=" may change nothing of an MPIJob but which nodes its workers keep off: hvd-elastic platform-kit",
    )
    variables = {
        "excluded": _named("object"),
        "excludedBefore": _named("oldObject"),
        "terms": _terms("object"),
        "termsBefore": _terms("oldObject"),
        "others": _others("variables.terms", "variables.excluded"),
        "othersBefore": _others("variables.termsBefore", "variables.excludedBefore"),
    }
    says_nothing = f"{_expressions('term')}.size() + {_fields('term')}.size() == 0"
    has_it = f"{_exclusion('variables.excluded')} in {_expressions('term')}"
    in_each = f"variables.terms.size() > 0 && variables.terms.all(term, {says_nothing} || {has_it})"
    allowed = [
        f"variables.excluded.size() <= {MOST_NODES}",
        "variables.others == variables.othersBefore",
        f"variables.excluded.size() == 0 || {in_each}",
    ]
    return replace(fields, variables={**fields.variables, **variables}, allowed=[*fields.allowed, *allowed])


def _named(thing: str) -> str:
    """The nodes that the annotation names."""
    text = f"dyn({thing}).metadata.?annotations[?{cel_text(ANNOTATION_EXCLUDED_NODES)}].orValue('')"
    return f"{text} == '' ? [] : {text}.split(',').map(one, one.split('=')[0])"


def _terms(thing: str) -> str:
    return f"dyn({thing}).?spec.?{'.?'.join(_TERMS)}.?nodeSelectorTerms.orValue([])"


def _others(terms: str, nodes: str) -> str:
    """The terms without the exclusion. The only one, if it says nothing else, came with it."""
    ours = _exclusion(nodes)
    expressions = f"{_expressions('term')}.filter(one, one != {ours})"
    left = f"{terms}.map(term, [dyn({expressions}), dyn({_fields('term')})])"
    return f"{terms} == [{{'matchExpressions': [{ours}]}}] ? [] : {left}"


def _expressions(term: str) -> str:
    return f"{term}.?matchExpressions.orValue([])"


def _fields(term: str) -> str:
    return f"{term}.?matchFields.orValue([])"


def _exclusion(nodes: str) -> str:
    return f"{{'key': dyn({cel_text(HOSTNAME)}), 'operator': dyn('NotIn'), 'values': dyn({nodes})}}"
