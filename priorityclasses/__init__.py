"""Priority classes of a cluster in which training soaks up what inference leaves."""

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
from hvd_elastic.priorityclasses.problem import Problem

__all__ = [
    "AUTOSCALER_CUTOFF",
    "DEFAULTS",
    "HIGHEST_VALUE",
    "PreemptionPolicy",
    "PriorityClass",
    "Problem",
    "Tier",
    "check",
    "manifest",
]
