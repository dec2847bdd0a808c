"""Traces as other projects publish them, written as the CSV that `simulate --trace` reads."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from hvd_elastic.decide.simulate.csv_table import text_of
from hvd_elastic.decide.simulate.traces.trace_file import NODE_COLUMNS, POD_COLUMNS
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_Rows = Iterator[tuple[object, ...]]

_OF_PARCAE: Final = frozenset({"no-op", "migration"})
"""What Parcae did by itself. No node came or went."""


def convert(path: Path) -> str:
    """The file as CSV. Raises InvalidInputError for an unknown format, or with the first line that is wrong."""
    lines = [(number, text.strip()) for number, text in enumerate(text_of(path).splitlines(), 1) if text.strip()]
    first = lines[0][1] if lines else ""
    form = next((form for pattern, form in FORMATS.items() if re.fullmatch(pattern, first)), None)
    if form is None:
        what = "begins no trace that SkyPilot, Bamboo, Parcae or Alibaba publish"
        raise InvalidInputError([Problem(path=f"{path}:1", value=first[:80], what=what)])
    rows, columns = form
    taken: list[tuple[int, str]] = []

    def text() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line[1]

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    try:
        writer.writerows(map(_finite, rows(text(), path.stem)))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        number, line = taken[-1]
        what = f"cannot be converted: {error}"
        raise InvalidInputError([Problem(path=f"{path}:{number}", value=line[:60], what=what)]) from error
    return written.getvalue()


def _finite(row: tuple[object, ...]) -> tuple[object, ...]:
    """The row. JSON reads `1e400` as infinity. Raises ValueError."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in row):
        raise ValueError("a number is not finite")
    return row


def _node_changes(lines: Iterator[str], _: str) -> _Rows:
    next(lines)
    for line in lines:
        trace, second, _op, _node, after = line.split(",")
        yield trace, float(second), int(after)


def _samples(lines: Iterator[str], name: str) -> _Rows:
    document = json.loads("\n".join(lines))
    gap, samples = document["metadata"]["gap_seconds"], document["data"]
    for place, sample in enumerate([*samples, samples[-1]]):
        yield name, place * gap, int(sample)


def _counts_by_date(lines: Iterator[str], name: str) -> _Rows:
    begin: datetime | None = None
    for line in lines:
        if line == "timestamp,count":
            continue
        text, _, count = line.rpartition(",")
        moment = datetime.fromisoformat(" ".join(part.strip() for part in text.split(",")))
        begin = begin or moment
        yield name, (moment - begin).total_seconds(), int(count)


def _counts_by_millisecond(lines: Iterator[str], name: str) -> _Rows:
    for line in lines:
        milliseconds, count = line.split(",")
        yield name, int(milliseconds) / 1000, int(count)


def _node_events(lines: Iterator[str], name: str) -> _Rows:
    there = set[str]()
    for line in lines:
        milliseconds, op, node = line.split(",")
        yield name, int(milliseconds) / 1000, _changed(there, op, [node])


def _parcae_events(lines: Iterator[str], name: str) -> _Rows:
    there, end = set[str](), 0.0
    for line in lines:
        milliseconds, op, act = json.loads(line)
        end = (milliseconds + act.get("duration", 0)) / 1000
        yield name, milliseconds / 1000, _changed(there, op, act["nodes"])
    yield name, end, len(there)


def _changed(there: set[str], op: str, nodes: Iterable[str]) -> int:
    """How many nodes are there once these came or went."""
    if op not in _OF_PARCAE:
        wrong = {"add": there.intersection(nodes), "remove": set(nodes) - there}[op]
        if wrong:
            raise ValueError(f"cannot {op} {', '.join(sorted(wrong))}")
        there.symmetric_difference_update(nodes)
    return len(there)


def _alibaba_pods(lines: Iterator[str], _: str) -> _Rows:
    for row in csv.DictReader(lines):
        if float(row["gpu_request"]):
            times = (row[column] for column in ("creation_time", "scheduled_time", "deletion_time"))
            yield row["instance_sn"], row["gpu_request"], *("" if time.lower() == "nan" else time for time in times)


FORMATS: Final[Mapping[str, tuple[Callable[[Iterator[str], str], _Rows], Sequence[str]]]] = {
    r"\{.*": (_samples, NODE_COLUMNS),
    r"\d{4}-\d\d-\d\d, *\d\d:\d\d:\d\d, *\d+|timestamp,count": (_counts_by_date, NODE_COLUMNS),
    r"\d+,(add|remove),[^,]+": (_node_events, NODE_COLUMNS),
    r"\[.*": (_parcae_events, NODE_COLUMNS),
    r"\d+,\d+": (_counts_by_millisecond, NODE_COLUMNS),
    r"trace,t_s,op,nodes?,nodes_after": (_node_changes, NODE_COLUMNS),
    r"instance_sn,role,app_name,.*": (_alibaba_pods, POD_COLUMNS),
}
"""What the whole first line matches; who reads the lines, given a name for a trace that has none; what they become."""
