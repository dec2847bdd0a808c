"""What `simulate` and `simulate --choose` simulate, and what both say of it first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hvd_elastic.cli.output import say
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from hvd_elastic.decide.simulate.autoscaling.inference_reserve import ReserveRule
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
    reserve: "ReserveRule | None" = None
    """What they leave idle for inference there; None: nothing."""
    exclude_slow: bool = False
    """Whether in the way `ours` the successors of slow workers keep off their nodes."""


def setup_remarks(setup: DaySetup) -> list[str]:
    """What was assumed, how jobs come to their GPUs, and which nodes are bought."""
    from hvd_elastic.decide.simulate.inputs.simulated_jobs import assumptions

    remarks = assumptions(setup.plans)
    if setup.share:
        remarks.append("ours: jobs share idle GPUs as autoscale has it")
    elif sum(plan.copies for plan in setup.plans) > 1:
        remarks.append("jobs compete for idle GPUs as their pods do; --autoscale shares them by gain")
    if setup.reserve:
        bought = ", for which a buffer has nodes bought" if setup.reserve.buffer else ""
        remarks.append(f"ours: jobs leave a reserve idle for inference{bought}")
    if group := setup.day.node_group:
        nodes = f"up to {count_words(group.most, 'node')} of {count_words(group.gpus, 'GPU')}"
        remarks.append(f"a cluster autoscaler buys {nodes}, each there after {group.delay_seconds:g} s")
    return remarks


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
