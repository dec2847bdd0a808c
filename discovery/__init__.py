"""Which workers of a job may be used, right now: what runs beside the launcher."""

from discovery.eligibility import Answer, AtRisk, LeftOut, Reason, Rules, eligible_hosts
from discovery.hosts import write_script
from discovery.snapshot import (
    Host,
    MissingSnapshotError,
    Snapshot,
    SnapshotError,
    StaleSnapshotError,
    TornSnapshotError,
    read_snapshot,
    uptime_seconds,
    write_snapshot,
)
from discovery.views import NodeView, PodView, WorkerView

__all__ = [
    "Answer",
    "AtRisk",
    "Host",
    "LeftOut",
    "MissingSnapshotError",
    "NodeView",
    "PodView",
    "Reason",
    "Rules",
    "Snapshot",
    "SnapshotError",
    "StaleSnapshotError",
    "TornSnapshotError",
    "WorkerView",
    "eligible_hosts",
    "read_snapshot",
    "uptime_seconds",
    "write_script",
    "write_snapshot",
]
