"""What `simulate` and `simulate --choose` simulate, and what both say of it first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hvd_elastic.cli.output import say
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from hvd_elastic.decide.simulate.day import Day
    from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan
    from hvd_elastic.decide.simulate.inputs.stall_settings import WayStalls
    from hvd_elastic.decide.simulate.simulation import Share


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySetup:
    """What is simulated."""

    day: "Day"
    plans: "tuple[JobPlan, ...]"
    stalls: "WayStalls"
    share: "Share | None"
    """How jobs share idle GPUs in the way `ours`; None: their pods compete."""
    exclude_slow: bool = False
    """Whether in the way `ours` the successors of slow workers keep off their nodes."""


def setup_remarks(setup: DaySetup) -> list[str]:
    """What was assumed, and how several jobs come to their GPUs."""
    from hvd_elastic.decide.simulate.inputs.simulated_jobs import assumptions

    assumed = assumptions(setup.plans)
    if sum(plan.copies for plan in setup.plans) < 2:
        return assumed
    if setup.share:
        return [*assumed, "ours: jobs share idle GPUs as autoscale has it"]
    return [*assumed, "jobs compete for idle GPUs as their pods do; --autoscale shares them by gain"]


def day_facts(day: "Day") -> dict[str, Any]:
    """What was simulated, for programs."""
    return {
        "source": day.source,
        "seconds": day.seconds,
        "nodes": sum(1 for _ in day.nodes),
        "pods": sum(1 for _ in day.pods),
    }


def tell_day(facts: Mapping[str, Any], remarks: Sequence[str]) -> None:
    """What was simulated, and what was assumed, for people."""
    pods = count_words(facts["pods"], "inference pod") if facts["pods"] else "no inference"
    nodes = f"{count_words(facts['nodes'], 'node')} (one that returns counts again)"
    say(f"{facts['source']}; {facts['seconds'] / 3600:.3g} h, {nodes}, {pods}")
    for remark in remarks:
        say(f"  {remark}")
