"""How the jobs of a sweep compare: one row for each point, the best first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.report.job_list import listed
from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.client.sweep.grid import Point
from hvd_elastic.client.sweep.sweep_control import runner_is_suspended
from hvd_elastic.client.sweep.sweep_record import SweepRecord, find_record
from hvd_elastic.client.sweep.sweep_submission import sweep_mpijobs
from hvd_elastic.client.sweep.turns import SweepJob
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS

GONE: Final = "gone"
"""The state of a job that is not there: it was deleted, or its time after its end (`keep`) is over."""
LOSS: Final = "loss"


class Best(StrEnum):
    """Which value of a metric is the best."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One job."""

    job: str
    point: Point
    state: str
    """A value of JobState, or `gone`. A job that waits for its turn is queued."""
    step: int = -1
    """-1: not known."""
    metrics: Mapping[str, float]
    """What the script logged last, by name, the loss among it."""

    @property
    def reported_nothing(self) -> bool:
        """Whether its job has ended without a word of a step or of a metric."""
        has_ended = self.state != GONE and JobState(self.state).is_final
        return has_ended and self.step < 0 and not self.metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """A sweep as it is now."""

    name: str
    at_once: int | None
    stopped: bool
    """Its runner is suspended: nobody gets a turn."""
    rows: Sequence[SweepRow]


def sweep_status(cluster: ClusterClient, name: str, *, metric: str = LOSS, best: Best = Best.MIN) -> SweepStatus:
    """The sweep's jobs, the best first. Raises UnknownSweepError; other ClusterErrors."""
    record = find_record(cluster, name)
    there = sweep_mpijobs(cluster, name)
    now = (cluster.ask("GET", "/version").time or datetime.now(UTC)).timestamp()
    return SweepStatus(
        name=name,
        at_once=record.at_once,
        stopped=record.needs_runner and runner_is_suspended(cluster, record),
        rows=ranked(rows_of(record, there, now), metric, best),
    )


def rows_of(record: SweepRecord, there: Mapping[str, Json], now: float) -> Sequence[SweepRow]:
    """A row for each point, in the order of the sweep. `now`: Unix seconds by the server's clock."""
    return [
        _row(job.name, job.point, there[job.name], now)
        if job.name in there
        else SweepRow(job=job.name, point=job.point, state=GONE, metrics={})
        for job in record.jobs
    ]


def ranked(rows: Sequence[SweepRow], metric: str, best: Best) -> Sequence[SweepRow]:
    """The best first; those without the metric last, in their order."""
    sign = 1 if best is Best.MIN else -1
    return sorted(rows, key=lambda row: sign * row.metrics[metric] if metric in row.metrics else math.inf)


def _row(name: str, point: Point, job: Json, now: float) -> SweepRow:
    found, turn = listed(job, now), SweepJob.from_json(job)
    state = JobState.QUEUED if turn.waits and found.state is JobState.SUSPENDED else found.state
    return SweepRow(job=name, point=point, state=str(state), step=found.step, metrics=_metrics(job))


def _metrics(job: Mapping[str, Any]) -> Mapping[str, float]:
    live = LiveStatus.from_json((job["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS) or "")
    if live is None:
        return {}
    return {**live.metrics, **({} if live.loss is None else {LOSS: live.loss})}
