"""What the API server answers by a ValidatingAdmissionPolicy, by the library that evaluates its expressions there."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.go_program import go_program

SOURCES = Path(__file__).parent / "gocel"
"""CEL as in Kubernetes 1.34: cel-go 0.26."""


def refusal(policy: Mapping[str, Any], **known: Any) -> str:
    """What is answered to a request; empty: it is admitted.

    `known`: what the API server gives to the expressions: `request`, `object`, and for a change `oldObject`. Variables
    may be made of others that are not. Skips the test, with the reason, without Go.
    """
    spec = policy["spec"]
    if not all(_evaluate([one["expression"] for one in spec["matchConditions"]], known)):
        return ""
    variables = {one["name"]: one["expression"] for one in spec.get("variables", ())}
    first = {name: text for name, text in variables.items() if "variables." not in text}
    known["variables"] = dict(zip(first, _evaluate([*first.values()], known), strict=True))
    composed = {name: text for name, text in variables.items() if name not in first}
    known["variables"] |= dict(zip(composed, _evaluate([*composed.values()], known), strict=True))
    said = [(one["expression"], one["messageExpression"]) for one in spec["validations"]]
    answers = _evaluate([text for pair in said for text in pair], known)
    return next((str(message) for holds, message in zip(answers[::2], answers[1::2], strict=True) if not holds), "")


def _evaluate(expressions: Sequence[str], known: Mapping[str, Any]) -> list[Any]:
    if not expressions:
        return []
    question = json.dumps({"variables": known, "expressions": expressions})
    done = subprocess.run(
        [str(go_program(SOURCES))], input=question, capture_output=True, text=True, check=True, timeout=60
    )
    answers: list[Any] = json.loads(done.stdout)
    errors = [one["error"] for one in answers if isinstance(one, dict) and set(one) == {"error"}]
    assert not errors, errors
    return answers
