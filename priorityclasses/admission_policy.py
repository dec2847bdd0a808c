"""What the API server refuses by expressions in CEL: a ValidatingAdmissionPolicy and its binding.

`admissionregistration.k8s.io/v1` has them from Kubernetes 1.30 on, and needs neither a webhook nor the API server's own
configuration, which is out of reach on managed clusters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

LABELS: Final = {"app.kubernetes.io/managed-by": "hvd-elastic"}
_API: Final = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """One rule about one kind of request. What cannot be judged is refused."""

    name: str
    group: str
    versions: Sequence[str]
    resource: str
    operation: str
    """`CREATE`, or `UPDATE`, which a patch is too."""
    condition: tuple[str, str]
    """Name and expression: the requests that are looked at. An error in it refuses the request, whosever it is."""
    variables: Mapping[str, str] = field(default_factory=dict)
    allowed: Sequence[str]
    """Expressions. All of them hold for a request that is admitted."""
    refusal: str
    """The expression of what is answered otherwise."""

    def manifests(self) -> list[dict[str, Any]]:
        """The policy, and the binding that puts it in force in all namespaces."""
        meta = {"name": self.name, "labels": dict(LABELS)}
        rule = {
            "apiGroups": [self.group],
            "apiVersions": list(self.versions),
            "operations": [self.operation],
            "resources": [self.resource],
        }
        name, expression = self.condition
        variables = [{"name": each, "expression": text} for each, text in self.variables.items()]
        policy = {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": meta,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [{"name": name, "expression": expression}],
                **({"variables": variables} if variables else {}),
                "validations": [
                    {"expression": one, "messageExpression": self.refusal, "reason": "Forbidden"}
                    for one in self.allowed
                ],
            },
        }
        binding = {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": self.name, "labels": dict(LABELS)},
            "spec": {"policyName": self.name, "validationActions": ["Deny"]},
        }
        return [policy, binding]


def cel_text(word: str) -> str:
    """A string of CEL. Names of Kubernetes objects hold nothing that would need an escape."""
    return f"'{word}'"


def cel_list(words: Sequence[str]) -> str:
    """A list of such strings."""
    return f"[{', '.join(map(cel_text, words))}]"
