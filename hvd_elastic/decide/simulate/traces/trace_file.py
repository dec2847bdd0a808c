"""One file of recorded traces: which format it is in is told from its first line."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hvd_elastic.decide.simulate.traces import capacity_steps, inference_pods, node_events
from hvd_elastic.decide.simulate.traces.capacity_steps import Lines
from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_rows import RowReader
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """How one project writes its traces."""

    title: str
    first_line: str
    """Regular expression that the first line matches in full."""
    shown: str
    """The first line, as documentation shows it."""
    read: Callable[[RowReader, Lines], Iterator[RecordedTrace]]


FORMATS: Final = (
    TraceFormat(
        title="numbers of nodes",
        first_line=r"trace,t_s,available",
        shown="trace,t_s,available",
        read=capacity_steps.step_table,
    ),
    TraceFormat(
        title="named nodes",
        first_line=r"trace,t_s,op,node,nodes_after",
        shown="trace,t_s,op,node,nodes_after",
        read=node_events.node_event_table,
    ),
    TraceFormat(
        title="nodes that come and go, counted",
        first_line=r"trace,t_s,op,nodes,nodes_after",
        shown="trace,t_s,op,nodes,nodes_after",
        read=node_events.counted_event_table,
    ),
    TraceFormat(
        title="inference pods",
        first_line=",".join(inference_pods.POD_COLUMNS),
        shown=",".join(inference_pods.POD_COLUMNS),
        read=inference_pods.pod_table,
    ),
    TraceFormat(
        title="Alibaba's cluster-trace-gpu-v2025",
        first_line=",".join(inference_pods.ALIBABA_COLUMNS),
        shown="instance_sn,role,app_name,...",
        read=inference_pods.alibaba_table,
    ),
    TraceFormat(
        title="SkyPilot's JSON",
        first_line=r"\{.*",
        shown='{"metadata": {"gap_seconds": 300}, "data": [...]}',
        read=capacity_steps.sampled_json,
    ),
    TraceFormat(
        title="Parcae's events",
        first_line=r"\[.*",
        shown='[0, "add", {"nodes": [...], "duration": 60000, ...}]',
        read=node_events.parcae_lines,
    ),
    TraceFormat(
        title="Bamboo's events",
        first_line=r"\d+,(add|remove),[^,]+",
        shown="0,add,node1",
        read=node_events.node_event_lines,
    ),
    TraceFormat(
        title="Bamboo's numbers by date",
        first_line=r"\d{4}-\d\d-\d\d, *\d\d:\d\d:\d\d, *\d+",
        shown="2021-12-11, 11:11:30, 55",
        read=capacity_steps.dated_lines,
    ),
    TraceFormat(
        title="Bamboo's numbers by timestamp",
        first_line=r"timestamp,count",
        shown="timestamp,count",
        read=capacity_steps.timestamp_table,
    ),
    TraceFormat(
        title="Parcae's numbers",
        first_line=r"\d+,\d+",
        shown="0,1",
        read=capacity_steps.millisecond_counts,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """What a file holds."""

    name: str
    """Of the file, without its folder."""
    format: TraceFormat
    traces: tuple[RecordedTrace, ...]


def read_traces(path: Path) -> TraceFile:
    """All traces of a file. A trace without a name of its own has the file's.

    Raises InvalidInputError with all wrong lines, or if the file is in no known format or holds nothing.
    """
    lines = _lines(path)
    form = next((known for known in FORMATS if lines and re.fullmatch(known.first_line, lines[0][1])), None)
    if form is None:
        way_out = f"known are files that begin {', '.join(repr(known.shown) for known in FORMATS)}"
        found = lines[0][1][:80] if lines else ""
        raise InvalidInputError([Problem(path=f"{path}:1", value=found, what="begins no known trace", way_out=way_out)])
    reader = RowReader(str(path))
    traces = tuple(form.read(reader, lines))
    reader.check()
    if not any(trace.nodes or trace.pods for trace in traces):
        raise InvalidInputError([Problem(path=str(path), value=..., what="has no node and no pod in it")])
    named = tuple(trace if trace.name else replace(trace, name=path.stem) for trace in traces)
    return TraceFile(name=path.name, format=form, traces=named)


def _lines(path: Path) -> Lines:
    """With their numbers, without what is empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        problem = Problem(path=str(path), value=..., what=f"cannot be read: {reason}")
        raise InvalidInputError([problem]) from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
