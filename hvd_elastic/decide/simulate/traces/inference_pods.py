"""Traces of inference pods: when each one was created, scheduled and deleted, and how many GPUs it has."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hvd_elastic.decide.simulate.day import InferencePod
from hvd_elastic.decide.simulate.traces.capacity_steps import Lines
from hvd_elastic.decide.simulate.traces.recorded_trace import RecordedTrace
from hvd_elastic.decide.simulate.traces.trace_rows import RowReader, TraceRow

POD_COLUMNS: Final = ("pod", "app", "gpus", "created_s", "scheduled_s", "deleted_s")
ALIBABA_COLUMNS: Final = (
    *("instance_sn", "role", "app_name", "cpu_request", "cpu_limit", "gpu_request", "gpu_limit"),
    *("rdma_request", "rdma_limit", "memory_request", "memory_limit", "disk_request", "disk_limit"),
    *("max_instance_per_node", "creation_time", "scheduled_time", "deletion_time"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Of the fields that count."""

    gpus: int
    created: int
    scheduled: int
    deleted: int


_POD: Final = _Places(gpus=2, created=3, scheduled=4, deleted=5)
_ALIBABA: Final = _Places(gpus=5, created=14, scheduled=15, deleted=16)


def pod_table(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """`pod,app,gpus,created_s,scheduled_s,deleted_s`: empty where it was before the trace or comes after it."""
    return _pods(reader, lines, POD_COLUMNS, _POD)


def alibaba_table(reader: RowReader, lines: Lines) -> Iterator[RecordedTrace]:
    """Alibaba's cluster-trace-gpu-v2025, as its README describes it. Pods without a GPU are left out."""
    return _pods(reader, lines, ALIBABA_COLUMNS, _ALIBABA)


def _pods(reader: RowReader, lines: Lines, columns: tuple[str, ...], places: _Places) -> Iterator[RecordedTrace]:
    read = (_pod(reader, row, places) for row in reader.rows(lines[1:], columns))
    pods = sorted((pod for pod in read if pod is not None and pod.gpus), key=lambda pod: pod.created)
    ends = (pod.created + pod.seconds for pod in pods if pod.seconds < float("inf"))
    last = max((*ends, *(pod.created for pod in pods)), default=0.0)
    yield RecordedTrace(name="", seconds=last, pods=tuple(pods))


def _pod(reader: RowReader, row: TraceRow, places: _Places) -> InferencePod | None:
    """It ran from its scheduling on. One that was deleted unscheduled asked as long as it was there."""
    gpus = reader.count(row, places.gpus, "number of GPUs")
    moments = [_moment(reader, row, place) for place in (places.created, places.scheduled, places.deleted)]
    created, scheduled, deleted = moments
    if gpus is None:
        return None
    ran_from = scheduled if scheduled is not None else created or 0.0
    if deleted is not None and deleted < ran_from:
        reader.wrong(row.line, deleted, f"is before it was there, at {ran_from:g}")
        return None
    seconds = float("inf") if deleted is None else deleted - ran_from
    return InferencePod(name=row.fields[0], gpus=gpus, created=created or 0.0, seconds=seconds)


def _moment(reader: RowReader, row: TraceRow, place: int) -> float | None:
    """None: before the trace or after it. A wrong time is noted, and None, too."""
    return None if row.fields[place] in {"", "NaN", "nan"} else reader.number(row, place, "time")
