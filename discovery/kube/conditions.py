"""The conditions of a Kubernetes object's status."""

from collections.abc import Mapping
from typing import Any


def true_condition(thing: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return the condition of this type that is True; None: there is none."""
    conditions = (thing.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind and one.get("status") == "True"), None)
