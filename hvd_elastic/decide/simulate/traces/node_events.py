"""Traces that say which node came or went, or how many at once."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hvd_elastic.decide.simulate.traces.capacity_steps import Lines, node_count_trace
from hvd_elastic.decide.simulate.traces.recorded_trace import NodePresence, RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_rows import RowReader, TraceRow

_ADD: Final = "add"
_REMOVE: Final = "remove"
_PARCAE_ACTS: Final = frozenset({"no-op", "migration"})
"""What Parcae did by itself. No node came or went."""


@dataclass(slots=True, kw_only=True)
class _Roll:
    """Which nodes of one trace are there."""

    reader: RowReader
    name: str
    since: dict[str, float] = field(default_factory=dict)
    comings: Counter[str] = field(default_factory=Counter)
    gone: list[NodePresence] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, line: int, second: float, op: str, nodes: Sequence[str]) -> None:
        """One event of one or more nodes."""
        if second < self.seconds:
            self.reader.wrong(line, second, f"comes before the line above it, at {self.seconds:g}")
        self.seconds = second
        for node in nodes:
            if op == _ADD and node not in self.since:
                self.since[node] = second
                self.comings[node] += 1
            elif op == _REMOVE and node in self.since:
                self.gone.append(NodePresence(name=self._life(node), since=self.since.pop(node), until=second))
            else:
                self.reader.wrong(line, node, "is there already" if op == _ADD else f"cannot {op}: it is not there")

    def trace(self) -> RecordedTrace:
        left = (NodePresence(name=self._life(node), since=since) for node, since in self.since.items())
        nodes = sorted((*self.gone, *left), key=lambda node: node.since)
        return RecordedTrace(name=self.name, seconds=self.seconds, nodes=tuple(nodes))

    def _life(self, node: str) -> str:
        """A node that comes again is another one."""
        return node if self.comings[node] == 1 else f"{node}-{self.comings[node]}"


def node_event_table(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """`trace,t_s,op,node,nodes_after` with a header: `add` and `remove` of named nodes."""
    rolls: dict[str, _Roll] = {}
    for row in reader.rows(lines[1:], ("trace", "t_s", "op", "node", "nodes_after")):
        second, after = reader.number(row, 1, "time"), reader.count(row, 4, "number of nodes")
        if second is None or after is None or not _is_known(reader, row, 2, {_ADD, _REMOVE}):
            continue
        roll = rolls.setdefault(row.fields[0], _Roll(reader=reader, name=row.fields[0]))
        roll.note(row.line, second, row.fields[2], [row.fields[3]])
        if len(roll.since) != after:
            reader.wrong(row.line, after, f"is not how many are there then: {len(roll.since)}")
    return (roll.trace() for roll in rolls.values())


def node_event_lines(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """Bamboo's `MILLISECONDS,add|remove,NODE` without a header: one trace."""
    roll = _Roll(reader=reader, name="")
    for row in reader.rows(lines, ("milliseconds", "add or remove", "node")):
        milliseconds = reader.number(row, 0, "time")
        if milliseconds is not None and _is_known(reader, row, 1, {_ADD, _REMOVE}):
            roll.note(row.line, milliseconds / 1000, row.fields[1], [row.fields[2]])
    yield roll.trace()


def counted_event_table(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """`trace,t_s,op,nodes,nodes_after` with a header: how many came or went. Parcae's own acts change nothing."""
    counts: dict[str, list[tuple[float, int]]] = {}
    for row in reader.rows(lines[1:], ("trace", "t_s", "op", "nodes", "nodes_after")):
        numbers = reader.number(row, 1, "time"), reader.count(row, 3, "number"), reader.count(row, 4, "number of nodes")
        second, changed, after = numbers
        known = _is_known(reader, row, 2, {_ADD, _REMOVE, *_PARCAE_ACTS})
        if second is None or changed is None or after is None or not known:
            continue
        found = counts.setdefault(row.fields[0], [])
        before = found[-1][1] if found else 0
        if after != before + {_ADD: changed, _REMOVE: -changed}.get(row.fields[2], 0):
            reader.wrong(
                row.line, after, f"is not how many are there after {row.fields[2]} {changed}, with {before} before"
            )
        found.append((second, after))
    return (node_count_trace(name, found) for name, found in counts.items())


def parcae_lines(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """Parcae's own lines `[MILLISECONDS, "add", {"nodes": [...], "duration": MILLISECONDS}]`: one trace."""
    roll = _Roll(reader=reader, name="")
    end = 0.0
    for number, text in lines:
        if not text.strip():
            continue
        try:
            milliseconds, op, act = json.loads(text)
            second, nodes, duration = _act(milliseconds, act)
        except (ValueError, TypeError, LookupError):
            way_out = 'write [MILLISECONDS, "add", {"nodes": [...]}]'
            reader.wrong(number, text.strip()[:60], "is not an event of Parcae", way_out)
            continue
        end = second + duration
        if op not in _PARCAE_ACTS:
            roll.note(number, second, op, nodes)
    roll.seconds = max(roll.seconds, end)
    yield roll.trace()


def _act(milliseconds: float, act: dict[str, Any]) -> tuple[float, list[str], float]:
    nodes = act["nodes"]
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes) or milliseconds < 0:
        raise TypeError("not the names of nodes at a time")
    return milliseconds / 1000, nodes, float(act.get("duration", 0)) / 1000


def _is_known(reader: RowReader, row: TraceRow, place: int, known: set[str]) -> bool:
    if row.fields[place] in known:
        return True
    reader.wrong(row.line, row.fields[place], "is not known", f"write {', '.join(sorted(known))}")
    return False
