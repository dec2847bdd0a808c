"""Traces that say how many nodes there were, and not which: step functions of time.

Which node goes when there are fewer is not in them. One is drawn, always the same for the same trace.
"""

import json
import random
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from hvd_elastic.decide.simulate.traces.recorded_trace import NodePresence, RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_rows import RowReader

NodeCounts = Sequence[tuple[float, int]]
"""Seconds of the trace, and how many nodes there were from then on. The last one says how long the trace is."""

Lines = Sequence[tuple[int, str]]
"""Lines of a file with their numbers."""

_COLUMNS: Final = ("trace", "t_s", "available")


def node_count_trace(name: str, counts: NodeCounts) -> RecordedTrace:
    """A trace of nodes from how many there were. They are `node-1` and so on, in the order in which they came."""
    chance = random.Random(name)  # noqa: S311 - which node goes, not a secret
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    there: list[str] = []
    for second, count in counts:
        while len(there) < count:
            node = f"node-{len(began) + 1}"
            there.append(node)
            began[node] = second
        while len(there) > count:
            ended[there.pop(chance.randrange(len(there)))] = second
    nodes = (NodePresence(name=node, since=since, until=ended.get(node, float("inf"))) for node, since in began.items())
    return RecordedTrace(name=name, seconds=counts[-1][0], nodes=tuple(nodes))


def step_table(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """`trace,t_s,available` with a header: several traces, each in the order of time."""
    counts: dict[str, list[tuple[float, int]]] = {}
    for row in reader.rows(lines[1:], _COLUMNS):
        second, count = reader.number(row, 1, "time"), reader.count(row, 2, "number of nodes")
        if second is not None and count is not None:
            _add(reader, row.line, counts.setdefault(row.fields[0], []), second, count)
    return (node_count_trace(name, found) for name, found in counts.items())


def timestamp_table(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """Bamboo's `timestamp,count` with a header: one trace."""
    return _dated(reader, lines[1:], ("timestamp", "count"))


def dated_lines(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """Bamboo's `DATE, TIME, NODES` without a header: one trace."""
    return _dated(reader, lines, ("date", "time", "nodes"))


def millisecond_counts(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """Parcae's `MILLISECONDS,NODES` without a header: one trace."""
    counts: list[tuple[float, int]] = []
    for row in reader.rows(lines, ("milliseconds", "nodes")):
        milliseconds, count = reader.number(row, 0, "time"), reader.count(row, 1, "number of nodes")
        if milliseconds is not None and count is not None:
            _add(reader, row.line, counts, milliseconds / 1000, count)
    return _one(counts)


def sampled_json(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """SkyPilot's `{"metadata": {"gap_seconds": 300}, "data": [0, 1, ...]}`: one trace."""
    try:
        document = json.loads("\n".join(text for _, text in lines))
        gap, samples = float(document["metadata"]["gap_seconds"]), document["data"]
        counts = [(place * gap, int(sample)) for place, sample in enumerate([*samples, samples[-1]])]
        if gap <= 0 or min(count for _, count in counts) < 0:
            raise ValueError("a negative number")
    except (ValueError, TypeError, LookupError) as error:
        reader.wrong(
            1, str(error), "is not SkyPilot's JSON", 'write {"metadata": {"gap_seconds": S}, "data": [N, ...]}'
        )
        return iter(())
    changes = [counts[0], *(after for before, after in pairwise(counts) if after[1] != before[1]), counts[-1]]
    return _one(changes)


def _dated(reader: RowReader, lines: Lines, columns: Sequence[str]) -> Iterator[RecordedTrace]:
    counts: list[tuple[float, int]] = []
    begin: datetime | None = None
    for row in reader.rows(lines, columns):
        text = " ".join(row.fields[:-1])
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            reader.wrong(row.line, text, "is not a date and a time")
            continue
        count = reader.count(row, len(columns) - 1, "number of nodes")
        if count is not None:
            begin = begin or moment
            _add(reader, row.line, counts, (moment - begin).total_seconds(), count)
    return _one(counts)


def _add(reader: RowReader, line: int, counts: list[tuple[float, int]], second: float, count: int) -> None:
    if counts and second < counts[-1][0]:
        reader.wrong(line, second, f"comes before the line above it, at {counts[-1][0]:g}", "sort each trace by time")
    else:
        counts.append((second, count))


def _one(counts: NodeCounts) -> Iterator[RecordedTrace]:
    if counts:
        yield node_count_trace("", counts)
