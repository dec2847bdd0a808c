"""Which taints keep a pod off a node, as the scheduler decides it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Json = Mapping[str, Any]


class Taint(NamedTuple):
    """One that keeps pods off: PreferNoSchedule does not."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As `kubectl taint` takes it, and a job's `tolerations`: `KEY=VALUE:EFFECT`."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def taints_of(node: Json) -> tuple[Taint, ...]:
    """The taints of a node that keep pods off."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return tuple(
        Taint(key=taint["key"], value=taint.get("value") or "", effect=taint["effect"])
        for taint in taints
        if taint["effect"] != "PreferNoSchedule"
    )


def untolerated(tolerations: Iterable[Json], node: Json) -> tuple[Taint, ...]:
    """The taints that keep a pod with these tolerations off this node."""
    known = list(tolerations)
    return tuple(taint for taint in taints_of(node) if not any(tolerates(one, taint) for one in known))


def tolerates(toleration: Json, taint: Taint) -> bool:
    """As `Toleration.ToleratesTaint` in Kubernetes' `core/v1`."""
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.key:
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == taint.value
