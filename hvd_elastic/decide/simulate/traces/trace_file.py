"""A CSV file of recorded traces: how many nodes there were, or inference pods. Its columns are told by their names."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hvd_elastic.decide.simulate.csv_table import MOST_COUNTED, CsvTable, text_of
from hvd_elastic.decide.simulate.day import InferencePod
from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace, node_count_trace
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

NODE_COLUMNS: Final = ("trace", "t_s", "available")
"""Several traces, each in the order of time. The last row of a trace says how long it is."""
POD_COLUMNS: Final = ("pod", "gpus", "created_s", "scheduled_s", "deleted_s")
"""A time is empty where it was before the trace or comes after it."""


def read_traces(path: Path) -> tuple[RecordedTrace, ...]:
    """All traces of a file. That of inference pods has the file's name.

    Raises InvalidInputError with all wrong lines, or if the file is no trace or holds nothing.
    """
    table = CsvTable(path, text_of(path))
    if set(NODE_COLUMNS) <= set(table.columns):
        traces = tuple(_node_traces(table))
    elif set(POD_COLUMNS) <= set(table.columns):
        traces = (_pod_trace(table),)
    else:
        way_out = (
            f"begin it with {','.join(NODE_COLUMNS)} or {','.join(POD_COLUMNS)}; of what others publish, "
            f"and of earlier formats, `hvd-elastic simulate --convert {path.name} > NEW.csv` makes such a file"
        )
        first = ",".join(table.columns)[:80]
        raise InvalidInputError([Problem(path=f"{path}:1", value=first, what="begins no trace", way_out=way_out)])
    table.check()
    if not any(trace.nodes or trace.pods for trace in traces):
        raise InvalidInputError([Problem(path=str(path), value=..., what="has no node and no pod in it")])
    return traces


def _node_traces(table: CsvTable) -> Iterator[RecordedTrace]:
    counts: dict[str, list[tuple[float, int]]] = defaultdict(list)
    come = 0
    for row in table.rows():
        found = counts[row["trace"]]
        second, count = table.number(row["t_s"], "time"), table.count(row["available"], "number of nodes")
        if second is None or count is None:
            continue
        if found and second < found[-1][0]:
            table.wrong(second, f"comes before the line above it, at {found[-1][0]:g}", "sort each trace by time")
            continue
        come += max(0, count - (found[-1][1] if found else 0))
        if come > MOST_COUNTED:
            table.wrong(count, f"is where more than {MOST_COUNTED} nodes have come", "divide the file")
            break
        found.append((second, count))
    return (node_count_trace(name, found) for name, found in counts.items() if found)


def _pod_trace(table: CsvTable) -> RecordedTrace:
    """Pods without a GPU are left out."""
    read = (_pod(table, row) for row in table.rows())
    pods = sorted((pod for pod in read if pod is not None and pod.gpus), key=lambda pod: pod.created)
    ends = (pod.created + pod.seconds for pod in pods if pod.seconds < float("inf"))
    last = max((*ends, *(pod.created for pod in pods)), default=0.0)
    return RecordedTrace(name=table.path.stem, seconds=last, pods=tuple(pods))


def _pod(table: CsvTable, row: dict[str, str]) -> InferencePod | None:
    """It ran from its scheduling on. One that was deleted unscheduled asked as long as it was there."""
    gpus = table.count(row["gpus"], "number of GPUs")
    created, scheduled, deleted = (
        table.number(row[column], "time") if row[column] else None for column in POD_COLUMNS[2:]
    )
    ran_from = scheduled if scheduled is not None else created or 0.0
    if deleted is not None and deleted < ran_from:
        table.wrong(deleted, f"is before it was there, at {ran_from:g}")
    if gpus is None:
        return None
    seconds = float("inf") if deleted is None else deleted - ran_from
    return InferencePod(name=row["pod"], gpus=gpus, created=created or 0.0, seconds=seconds)
