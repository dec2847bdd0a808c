"""Where a rehearsal may take place: on nodes whose GPUs nobody holds, so that it preempts nobody but itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.system import quantity

WORKERS: Final = 2
"""One is preempted, and one trains on."""
_OVER: Final = frozenset({"Succeeded", "Failed"})

Json = Mapping[str, Any]


class RehearsalRefusedError(HvdElasticError):
    """The cluster, or the rights of the caller, do not allow a rehearsal. Nothing is left of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The nodes of a rehearsal."""

    nodes: Sequence[str]
    """Where the workers run, with one GPU each."""
    inference_node: str
    """Where the inference pod runs."""
    inference_gpus: int
    """What it asks for: one GPU more than the workers leave on its node."""


def gpus_held(pods: Iterable[Json], resource: str) -> dict[str, dict[str, int]]:
    """By node, the pods (`NAMESPACE/NAME`) that hold such GPUs there, and how many."""
    held: dict[str, dict[str, int]] = {}
    for pod in pods:
        node, gpus = pod["spec"].get("nodeName"), _asked(pod, resource)
        if node and gpus and pod["status"].get("phase") not in _OVER:
            meta = pod["metadata"]
            held.setdefault(node, {})[f"{meta['namespace']}/{meta['name']}"] = gpus
    return held


def choose_stage(nodes: Sequence[Json], pods: Iterable[Json], resource: str) -> Stage:
    """One free node with two GPUs, else two free nodes with one.

    Raises RehearsalRefusedError, which says of each node with GPUs why it will not do.
    """
    held = gpus_held(pods, resource)
    offering = {_name(node): _offered(node, resource) for node in nodes if _offered(node, resource)}
    against = {name: why for node in nodes if (name := _name(node)) in offering and (why := _why_not(node, held))}
    free = {name: gpus for name, gpus in sorted(offering.items()) if name not in against}
    for name, gpus in free.items():
        if gpus >= WORKERS:
            # The fewest GPUs above what is left: exactly one worker must go.
            return Stage(nodes=(name,), inference_node=name, inference_gpus=gpus - WORKERS + 1)
    if len(free) >= WORKERS:
        chosen = tuple(free)[:WORKERS]
        return Stage(nodes=chosen, inference_node=chosen[0], inference_gpus=1)
    raise RehearsalRefusedError(_refusal(offering, against, resource))


def _refusal(offering: Mapping[str, int], against: Mapping[str, str], resource: str) -> str:
    if not offering:
        return f"no node offers {resource}: name another resource with --gpus-resource, or run hvd-elastic doctor"
    reasons = [f"{name} has {gpus}, and {against.get(name, 'is free')}" for name, gpus in sorted(offering.items())]
    return f"a rehearsal takes {WORKERS} {resource} on nodes where nobody else holds one: {'; '.join(reasons)}"


def _why_not(node: Json, held: Mapping[str, Mapping[str, int]]) -> str:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}
    if conditions.get("Ready") != "True":
        return "is not Ready"
    if node["spec"].get("unschedulable"):
        return "is cordoned"
    if holders := held.get(_name(node)):
        return f"{', '.join(sorted(holders))} hold some"
    return ""


def _name(node: Json) -> str:
    return str(node["metadata"]["name"])


def _offered(node: Json, resource: str) -> int:
    return quantity.count((node["status"].get("allocatable") or {}).get(resource, 0))


def _asked(pod: Json, resource: str) -> int:
    """Extended resources are in the limits: requests, if there are any, are the same. One that cannot be read holds."""
    containers = pod["spec"].get("containers") or ()
    limits = [((one.get("resources") or {}).get("limits") or {}).get(resource, 0) for one in containers]
    try:
        return sum(map(quantity.count, limits))
    except ValueError:
        return 1
