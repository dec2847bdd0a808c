"""A day out of recorded traces: which trace of a file, which hours of it, and what its nodes are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.traces.recorded_trace import NodePresence, RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_file import read_traces
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """What traces do not say about nodes."""

    gpus: int = 1
    machine: str = ""
    """Instance type, for prices; empty: not known."""
    spot: bool = True
    notice_seconds: float = 30.0
    """That the cloud gives before it takes a node. Azure and Google Cloud give 30, AWS 120."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChoice:
    """Which part of the files is played."""

    names: Sequence[str] = ()
    """Of traces. Needed for a file that has several."""
    begins: float = 0.0
    """Second of the trace at which the day begins."""
    seconds: float = 24 * _HOUR
    """How long the day is at most."""
    nodes: int | None = None
    """Nodes that are always there, beside those of the traces. Needed where no trace has nodes."""


def recorded_day(paths: Sequence[Path], choice: TraceChoice, kind: NodeKind) -> Day:
    """The day of one trace of nodes, or of one of inference pods, or of one of each.

    Raises InvalidInputError with what is wrong with the files or the choice.
    """
    chosen = [_chosen(path, choice.names) for path in paths]
    _check(paths, chosen, choice, kind)
    seconds = min(choice.seconds, *(trace.seconds - choice.begins for trace in chosen))
    nodes = [_node(node, choice.begins, kind) for trace in chosen for node in trace.nodes]
    pods = [pod for trace in chosen for pod in trace.pods]
    always = NodeKind(gpus=kind.gpus, machine=kind.machine, spot=False, notice_seconds=0.0)
    return Day(
        source="; ".join(_source(path, trace) for path, trace in zip(paths, chosen, strict=True))
        + f"; from hour {choice.begins / _HOUR:g}",
        seconds=seconds,
        nodes=(
            *fixed_nodes(choice.nodes or 0, always),
            *(node for node in nodes if node.until > 0 and node.since < seconds),
        ),
        pods=tuple(_pods(pods, choice.begins, seconds)),
    )


def fixed_nodes(number: int, kind: NodeKind) -> tuple[NodeLife, ...]:
    """Nodes that are there all day."""
    return tuple(
        NodeLife(name=f"fixed-{place}", gpus=kind.gpus, spot=kind.spot, machine=kind.machine)
        for place in range(1, number + 1)
    )


def gpus_asked_at_once(pods: Sequence[InferencePod]) -> int:
    """The most GPUs that inference asks for at one time."""
    changes = sorted(
        change for pod in pods for change in ((pod.created, pod.gpus), (pod.created + pod.seconds, -pod.gpus))
    )
    asked = most = 0
    for _, gpus in changes:
        asked += gpus
        most = max(most, asked)
    return most


def _chosen(path: Path, names: Sequence[str]) -> RecordedTrace:
    traces = read_traces(path)
    wanted = [trace for trace in traces if not names or trace.name in names] or traces
    if len(wanted) == 1:
        return wanted[0]
    several = ", ".join(f"{trace.name} ({trace.seconds / _HOUR:.0f} h)" for trace in traces)
    what = "names none of these traces" if names else "has several traces"
    value = ", ".join(names) if names else path.name
    raise InvalidInputError([Problem(path="--trace-name", value=value, what=what, way_out=f"choose one of {several}")])


def _check(paths: Sequence[Path], chosen: Sequence[RecordedTrace], choice: TraceChoice, kind: NodeKind) -> None:
    problems = [
        Problem(path="--trace", value=[path.name for path in paths], what=f"are several traces of {what}",
                way_out="give one of nodes and one of inference pods")
        for what, is_of_nodes in (("nodes", True), ("inference pods", False))
        if sum(trace.is_of_nodes is is_of_nodes for trace in chosen) > 1
    ]  # fmt: skip
    problems += [
        Problem(path="--from", value=choice.begins / _HOUR, what=f"is after the end of {trace.name}",
                way_out=f"it has {trace.seconds / _HOUR:.1f} hours")
        for trace in chosen
        if trace.seconds <= choice.begins
    ]  # fmt: skip
    if not choice.nodes and not any(trace.is_of_nodes for trace in chosen):
        most = max(gpus_asked_at_once(trace.pods) for trace in chosen)
        way_out = f"inference asks for up to {most} GPUs at once: --nodes {-(-most // kind.gpus)} holds them"
        problems.append(
            Problem(path="--nodes", value=choice.nodes, what="is missing: the trace has pods only", way_out=way_out)
        )
    if problems:
        raise InvalidInputError(problems)


def _node(node: NodePresence, begins: float, kind: NodeKind) -> NodeLife:
    """A node keeps its end, even after the day's: its notice may come within it."""
    return NodeLife(
        name=node.name,
        gpus=kind.gpus,
        since=max(0.0, node.since - begins),
        until=node.until - begins,
        notice_seconds=kind.notice_seconds,
        spot=kind.spot,
        machine=kind.machine,
    )


def _pods(pods: Sequence[InferencePod], begins: float, seconds: float) -> list[InferencePod]:
    """Those that ask within the day. One that runs as it begins has only the rest of its time left."""
    found = []
    for pod in pods:
        created, end = pod.created - begins, pod.created + pod.seconds - begins
        if end > 0 and created < seconds:
            left = pod.seconds if created >= 0 else end
            found.append(InferencePod(name=pod.name, gpus=pod.gpus, created=max(0.0, created), seconds=left))
    return found


def _source(path: Path, trace: RecordedTrace) -> str:
    name = "" if trace.name == path.stem else f" {trace.name}"
    return f"{path.name}{name} ({'numbers of nodes' if trace.is_of_nodes else 'inference pods'})"
