"""The flags that say which day is simulated: recorded traces, or a day made up from a seed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from hvd_elastic.cli.decisions.input_file import InputFile
from hvd_elastic.decide.simulate.day import NODE_START_SECONDS, Day, NodeGroup

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--trace", "traces", multiple=True, type=InputFile(), metavar="FILE",
                 help="A recorded trace as CSV, of nodes or of inference pods; one of each at most. Or its URL."),
    click.option("--trace-name", "trace_names", multiple=True, metavar="NAME",
                 help="Which trace of a file that has several."),
    click.option("--from", "begins", type=click.FloatRange(min=0), default=0.0, metavar="HOURS",
                 help="Where in the trace the day begins."),
    click.option("--hours", type=click.FloatRange(min=0, min_open=True), default=24.0, show_default=True,
                 help="How long the day is, at most."),
    click.option("--nodes", type=click.IntRange(min=1),
                 help="Nodes of the cluster. Made up: 8. With a trace: those that are always there beside it."),
    click.option("--node-gpus", type=click.IntRange(min=1),
                 help="GPUs of a node. Default: 1 with a trace of nodes alone, else 8."),
    click.option("--buy-nodes", type=click.IntRange(1, 100_000), metavar="N",
                 help="A cluster autoscaler buys up to so many nodes more, of --node-gpus, for pods without room."),
    click.option("--buy-delay", type=click.FloatRange(min=0), default=NODE_START_SECONDS, show_default=True,
                 metavar="SECONDS", help="Until pods are bound to a node that is bought."),
    click.option("--machine", default="", metavar="TYPE", help="Instance type of the nodes, for prices."),
    click.option("--notice", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="SECONDS",
                 help="Between the cloud's notice and the loss of a spot node; 0: it goes without a word."),
    click.option("--on-demand", is_flag=True, help="The nodes of the trace are not spot."),
    click.option("--seed", type=int, help="Make up a day from this seed. Default without --trace: 0."),
    click.option("--spot-nodes", type=click.IntRange(min=0),
                 help="Made up: how many of the nodes are spot. Default: a quarter."),
    click.option("--inference", default="0.3:0.7", show_default=True, metavar="LOW:HIGH",
                 help="Made up: share of the GPUs that inference has at 4 and at 16 o'clock."),
    click.option("--bursts", type=click.FloatRange(min=0), default=24.0, show_default=True,
                 help="Made up: bursts of inference a day."),
    click.option("--slow-node", "slow_nodes", multiple=True, metavar="NODE=TIME:TIMES",
                 help="A node on which training is slow from a time on: fixed-1=2h:1.8 takes 1.8 times as long."),
)  # fmt: skip
"""In the order of `--help`."""


def day_options(command: _Command) -> _Command:
    """Add the flags. `day_from` takes their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_day_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Take what belongs to the day out of all flags of a verb."""
    return {
        name: flags.pop(name)
        for name in (
            *("traces", "trace_names", "begins", "hours", "nodes", "node_gpus", "machine", "notice"),
            *("on_demand", "seed", "spot_nodes", "inference", "bursts", "slow_nodes", "buy_nodes", "buy_delay"),
        )
    }


def day_from(flags: Mapping[str, Any]) -> Day:
    """The day that the flags name. Raises InvalidInputError or UsageError."""
    if flags["traces"] and flags["seed"] is not None:
        raise click.UsageError("--trace plays a recorded day, --seed makes one up: give one of them")
    day = _recorded(flags) if flags["traces"] else _made_up(flags)
    if flags["buy_nodes"]:
        group = NodeGroup(gpus=_node_gpus(flags), most=flags["buy_nodes"], delay_seconds=flags["buy_delay"])
        day = replace(day, node_group=group)
    if not flags["slow_nodes"]:
        return day
    from hvd_elastic.decide.simulate.inputs.slow_nodes import with_slow_nodes

    return with_slow_nodes(day, flags["slow_nodes"])


def _node_gpus(flags: Mapping[str, Any]) -> int:
    return flags["node_gpus"] or (8 if flags["nodes"] or not flags["traces"] else 1)


def _recorded(flags: Mapping[str, Any]) -> Day:
    from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind, TraceChoice, recorded_day

    kind = NodeKind(
        gpus=_node_gpus(flags),
        machine=flags["machine"],
        spot=not flags["on_demand"],
        notice_seconds=flags["notice"],
    )
    choice = TraceChoice(
        names=flags["trace_names"], begins=flags["begins"] * 3600, seconds=flags["hours"] * 3600, nodes=flags["nodes"]
    )
    return recorded_day(flags["traces"], choice, kind)


def _made_up(flags: Mapping[str, Any]) -> Day:
    from hvd_elastic.decide.simulate.inputs.made_up_day import MadeUpCluster, made_up_day
    from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind

    if flags["begins"] or flags["trace_names"]:
        raise click.UsageError("--from and --trace-name need --trace")
    quiet, _, busy = flags["inference"].partition(":")
    try:
        shares = float(quiet), float(busy)
    except ValueError:
        raise click.BadParameter("write LOW:HIGH, such as 0.3:0.7", param_hint="--inference") from None
    nodes = flags["nodes"] or 8
    spot = flags["spot_nodes"] if flags["spot_nodes"] is not None else nodes // 4
    kind = NodeKind(gpus=_node_gpus(flags), machine=flags["machine"], notice_seconds=flags["notice"])
    cluster = MadeUpCluster(
        nodes=nodes,
        spot_nodes=spot,
        kind=kind,
        hours=flags["hours"],
        quiet=shares[0],
        busy=shares[1],
        bursts=flags["bursts"],
    )
    return made_up_day(flags["seed"] or 0, cluster)
