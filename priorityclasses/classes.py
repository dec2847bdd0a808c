"""The four classes of a colocated cluster: inference preempts, a floor and launchers stay, workers give way."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from hvd_elastic.priorityclasses.problem import Problem

HIGHEST_VALUE: Final = 1_000_000_000
"""Kubernetes reserves higher values for itself (`scheduling.HighestUserDefinablePriority`)."""
LOWEST_VALUE: Final = -(2**31)
AUTOSCALER_CUTOFF: Final = -10
"""Cluster Autoscaler adds no node for pods below this value (`--expendable-pods-priority-cutoff`)."""

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_RESERVED_PREFIX: Final = "system-"


class Tier(StrEnum):
    """What a class is for, highest first."""

    INFERENCE = "inference"
    """Inference takes GPUs from workers the moment it needs them."""
    FLOOR = "floor"
    """Of a job's first workers that inference may not take: a victim must have a strictly lower value."""
    PRESERVED = "preserved"
    """Launchers hold no GPU, and must not be preempted before the workers."""
    PREEMPTIBLE = "preemptible"
    """Workers use idle capacity and give it back."""


class PreemptionPolicy(StrEnum):
    """Whether a pending pod of the class may preempt other pods. It never protects a pod from preemption."""

    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
    NEVER = "Never"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """One PriorityClass."""

    tier: Tier
    name: str
    value: int
    """Higher values go first. At most HIGHEST_VALUE."""
    preemption_policy: PreemptionPolicy
    global_default: bool = False
    """Pods that name no class get this one. A cluster may have only one such class."""
    description: str = ""


DEFAULTS: Final = (
    PriorityClass(
        tier=Tier.INFERENCE,
        name="inference-pc",
        value=100_000_000,
        preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
        description="Inference: takes GPUs from training workers the moment it needs them.",
    ),
    PriorityClass(
        tier=Tier.FLOOR,
        name="floor-pc",
        value=100_000_000,
        preemption_policy=PreemptionPolicy.NEVER,
        description="The workers of a training job that it keeps, and its launcher: preempt nobody, and inference "
        "does not preempt them.",
    ),
    PriorityClass(
        tier=Tier.PRESERVED,
        name="preserved-pc",
        value=90_000_000,
        preemption_policy=PreemptionPolicy.NEVER,
        description="Launchers of training jobs: preempt nobody, and are preempted only after the workers.",
    ),
    PriorityClass(
        tier=Tier.PREEMPTIBLE,
        name="preemptible-pc",
        value=80_000_001,
        preemption_policy=PreemptionPolicy.NEVER,
        description="Training workers: preempt nobody, soak up idle GPUs, give them back to inference.",
    ),
)
"""The values are far apart, so that other classes fit between them, and far above the autoscaler's cutoff."""


def check(classes: Sequence[PriorityClass], *, cutoff: int = AUTOSCALER_CUTOFF) -> list[Problem]:
    """Every problem of a set of classes: names, bounds, order, defaults, and which class preempts which."""
    alone = [problem for index, one in enumerate(classes) for problem in _alone(f"classes[{index}]", one, cutoff)]
    return [*alone, *_names(classes), *_order(classes), *_global_default(classes)]


def _alone(path: str, one: PriorityClass, cutoff: int) -> Iterator[Problem]:
    if not _NAME.fullmatch(one.name):
        what = "is not the name of a Kubernetes object"
        yield Problem(
            path=f"{path}.name", value=one.name, what=what, way_out="use lower-case letters, digits, '-' and '.'"
        )
    if one.name.startswith(_RESERVED_PREFIX):
        what = f"begins with {_RESERVED_PREFIX}, which Kubernetes reserves for itself"
        yield Problem(path=f"{path}.name", value=one.name, what=what, way_out="choose another name")
    if one.value > HIGHEST_VALUE:
        what = f"is above {HIGHEST_VALUE}, the highest value that users may define"
        yield Problem(path=f"{path}.value", value=one.value, what=what, way_out="lower it")
    if one.value < max(cutoff, LOWEST_VALUE):
        what = f"is below the Cluster Autoscaler's cutoff {cutoff}: it would add no node for these pods"
        yield Problem(path=f"{path}.value", value=one.value, what=what, way_out="raise it")
    preempts = one.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    if preempts != (one.tier is Tier.INFERENCE):
        right = PreemptionPolicy.NEVER if preempts else PreemptionPolicy.PREEMPT_LOWER_PRIORITY
        what = "lets training preempt other pods" if preempts else "keeps inference waiting for workers"
        path = f"{path}.preemption_policy"
        yield Problem(path=path, value=one.preemption_policy.value, what=what, way_out=f"write {right}")


def _names(classes: Sequence[PriorityClass]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, one in enumerate(classes):
        if one.name in seen:
            what = f"is also the name of classes[{seen[one.name]}]"
            yield Problem(path=f"classes[{index}].name", value=one.name, what=what, way_out="choose another name")
        seen.setdefault(one.name, index)


def _order(classes: Sequence[PriorityClass]) -> Iterator[Problem]:
    """Higher tiers have higher values, but for the floor, which has inference's own.

    Below it, inference would take the floor. Above it, inference of a queue of Kueue would wait behind training.
    """
    ranked = sorted(range(len(classes)), key=lambda index: list(Tier).index(classes[index].tier))
    for above, below in pairwise(ranked):
        high, low = classes[above], classes[below]
        if (high.tier, low.tier) == (Tier.INFERENCE, Tier.FLOOR):
            if high.value != low.value:
                what = f"is not {high.value}, the value of {high.name} ({high.tier})"
                yield Problem(path=f"classes[{below}].value", value=low.value, what=what, way_out="write that")
        elif high.tier is not low.tier and high.value <= low.value:
            what = f"is not above {low.value}, the value of {low.name} ({low.tier})"
            yield Problem(
                path=f"classes[{above}].value", value=high.value, what=what, way_out="raise it, or lower that"
            )


def _global_default(classes: Sequence[PriorityClass]) -> Iterator[Problem]:
    defaults = [index for index, one in enumerate(classes) if one.global_default]
    for index in defaults[1:]:
        what = f"is a second default, after {classes[defaults[0]].name}"
        yield Problem(path=f"classes[{index}].global_default", value=True, what=what, way_out="keep one of them")


def manifest(one: PriorityClass) -> dict[str, Any]:
    """The manifest of a class."""
    default = {"globalDefault": True} if one.global_default else {}
    description = {"description": one.description} if one.description else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": one.name, "labels": {"app.kubernetes.io/managed-by": "hvd-elastic"}},
        "value": one.value,
        "preemptionPolicy": str(one.preemption_policy),
        **default,
        **description,
    }
