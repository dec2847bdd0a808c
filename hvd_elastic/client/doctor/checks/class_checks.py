"""Checks of the PriorityClasses: ours, their order, and every other class beside them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, error, ok, warning
from hvd_elastic.client.doctor.operators import arguments, images
from hvd_elastic.priorityclasses import AUTOSCALER_CUTOFF, DEFAULTS, PreemptionPolicy, Tier

_APPLY: Final = "hvd-elastic priorityclasses | kubectl apply -f -"
_REPLACE: Final = "hvd-elastic priorityclasses | kubectl replace --force -f -"
"""The value of a class cannot be changed: it has to be made anew."""
_NAMES: Final = {one.tier: one.name for one in DEFAULTS if one.tier is not Tier.FLOOR}
"""Those that every job needs; of the floor's, `floor_checks.py` tells."""


def _ours(facts: ClusterFacts) -> dict[Tier, Mapping[str, Any]]:
    by_name = {one["metadata"]["name"]: one for one in facts.priority_classes}
    return {tier: by_name[name] for tier, name in _NAMES.items() if name in by_name}


def _policy(one: Mapping[str, Any]) -> str:
    return str(one.get("preemptionPolicy") or PreemptionPolicy.PREEMPT_LOWER_PRIORITY)


@check("priority-classes", Fact.PRIORITY_CLASSES)
def our_classes(facts: ClusterFacts) -> Iterator[Verdict]:
    """Inference above launchers, launchers above workers."""
    ours = _ours(facts)
    missing = [name for tier, name in _NAMES.items() if tier not in ours]
    if missing:
        yield error(
            f"{', '.join(missing)} {'do' if len(missing) > 1 else 'does'} not exist: pods that name it are refused",
            _APPLY,
        )
        return
    values = {tier: int(one["value"]) for tier, one in ours.items()}
    shown = " > ".join(f"{name} {values[tier]}" for tier, name in _NAMES.items())
    if values[Tier.INFERENCE] > values[Tier.PRESERVED] > values[Tier.PREEMPTIBLE]:
        yield ok(shown)
    else:
        yield error(f"the order is wrong, {shown} is not true", _REPLACE)
    if _policy(ours[Tier.INFERENCE]) == PreemptionPolicy.NEVER:
        yield error(f"{_NAMES[Tier.INFERENCE]} never preempts: inference waits until training ends", _REPLACE)
    for tier in (Tier.PRESERVED, Tier.PREEMPTIBLE):
        if _policy(ours[tier]) != PreemptionPolicy.NEVER:
            yield warning(f"pods of {_NAMES[tier]} preempt pods below them: training takes GPUs from others", _REPLACE)


@check("default-class", Fact.PRIORITY_CLASSES)
def default_class(facts: ClusterFacts) -> Iterator[Verdict]:
    """Pods that name no class get the default one."""
    defaults = [one for one in facts.priority_classes if one.get("globalDefault")]
    workers = _ours(facts).get(Tier.PREEMPTIBLE)
    if not defaults or workers is None:
        yield ok("none: pods that name no class have priority 0")
        return
    for one in defaults:
        name, value = one["metadata"]["name"], int(one["value"])
        if name == _NAMES[Tier.PREEMPTIBLE]:
            yield warning(f"every pod that names no class gets {name}, and may be preempted by inference", _REPLACE)
        elif value > int(workers["value"]) and _policy(one) != PreemptionPolicy.NEVER:
            yield warning(
                f"every pod that names no class gets {name} ({value}) and preempts training for its CPU",
                f"kubectl patch priorityclass {name} -p '{{\"globalDefault\": false}}'",
            )
        else:
            yield ok(f"pods that name no class get {name} ({value})")


@check("autoscaler-cutoff", Fact.PRIORITY_CLASSES, Fact.DEPLOYMENTS)
def autoscaler_cutoff(facts: ClusterFacts) -> Iterator[Verdict]:
    """Cluster Autoscaler adds no node for pods below its cutoff, and removes nodes that only they use."""
    workers = _ours(facts).get(Tier.PREEMPTIBLE)
    found = [(deployment, cutoff) for deployment in facts.deployments if (cutoff := _cutoff(deployment)) is not None]
    if not found or workers is None:
        yield ok("no Cluster Autoscaler runs in the cluster")
        return
    for deployment, cutoff in found:
        name = f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        if int(workers["value"]) < cutoff:
            yield warning(
                f"{name} adds no node for workers, and removes theirs: its cutoff is {cutoff}, "
                f"{_NAMES[Tier.PREEMPTIBLE]} is {workers['value']}",
                f"start it with --expendable-pods-priority-cutoff={AUTOSCALER_CUTOFF}",
            )
        else:
            yield ok(f"{name}: cutoff {cutoff}")


def _cutoff(deployment: Mapping[str, Any]) -> int | None:
    """The cutoff of a Cluster Autoscaler; None for every other Deployment."""
    if not any("cluster-autoscaler" in image for image in images(deployment)):
        return None
    for argument in arguments(deployment):
        flag, _, value = argument.partition("=")
        if flag.lstrip("-") == "expendable-pods-priority-cutoff":
            return int(value)
    return AUTOSCALER_CUTOFF
