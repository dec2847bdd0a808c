"""PriorityClasses of a cluster in which training uses the capacity that inference leaves idle."""

from hvd_elastic.priorityclasses.classes import (
    AUTOSCALER_CUTOFF,
    DEFAULTS,
    HIGHEST_VALUE,
    PreemptionPolicy,
    PriorityClass,
    Tier,
    check,
    manifest,
)
from hvd_elastic.priorityclasses.guard import ClassQuota, ClassUser, check_guard, guard_manifests
from hvd_elastic.priorityclasses.problem import Problem

__all__ = [
    "AUTOSCALER_CUTOFF",
    "DEFAULTS",
    "HIGHEST_VALUE",
    "ClassQuota",
    "ClassUser",
    "PreemptionPolicy",
    "PriorityClass",
    "Problem",
    "Tier",
    "check",
    "check_guard",
    "guard_manifests",
    "manifest",
]
