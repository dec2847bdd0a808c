"""What gives the first workers of a job the class of a floor: a MutatingAdmissionPolicy.

An MPIJob has one worker template, so its workers have one class. The policy looks at pods with the label of a floor
alone, and gives the class to those whose index is below it. The API server checks priorities before it (admission
plugin Priority), refuses a number that is not the class's own, and checks once more after a change: so both fields that
follow from the class are removed (Kubernetes 1.37, `plugin/pkg/admission/priority/admission.go`).
"""

from typing import Any, Final

from hvd_elastic.mpijob.contract import LABEL_FLOOR, LABEL_REPLICA_INDEX
from hvd_elastic.priorityclasses import PriorityClass
from hvd_elastic.priorityclasses.admission_policy import LABELS, cel_text

_API: Final = "admissionregistration.k8s.io/v1"
NAME: Final = "floor.hvd-elastic.dev"


def floor_policy(floor: PriorityClass) -> list[dict[str, Any]]:
    """The policy, and the binding that puts it in force in all namespaces. What it cannot judge is refused."""
    index, most = (f"int(object.metadata.labels[{cel_text(label)}])" for label in (LABEL_REPLICA_INDEX, LABEL_FLOOR))
    changes = (
        f"JSONPatch{{op: 'add', path: '/spec/priorityClassName', value: {cel_text(floor.name)}}}",
        *(f"JSONPatch{{op: 'remove', path: '/spec/{field}'}}" for field in ("priority", "preemptionPolicy")),
    )
    meta = {"name": NAME, "labels": dict(LABELS)}
    policy = {
        "apiVersion": _API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": meta,
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "objectSelector": {"matchExpressions": [{"key": LABEL_FLOOR, "operator": "Exists"}]},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "matchConditions": [{"name": "is-below-the-floor", "expression": f"{index} < {most}"}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{', '.join(changes)}]"}}],
        },
    }
    binding = {
        "apiVersion": _API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": NAME, "labels": dict(LABELS)},
        "spec": {"policyName": NAME},
    }
    return [policy, binding]
