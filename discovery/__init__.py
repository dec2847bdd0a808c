"""Which workers of a job may be used, right now. It runs beside the launcher, as a sidecar.

Where to change what:

- when a job has begun, so that its next launcher begins with min workers: `job_beginning.py`; the sidecar's
  `_note_beginning`.
"""

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.rules.cluster_views import NodeView, PodView, WorkerView
from hvd_elastic.discovery.rules.eligibility import EligibleHosts, eligible_hosts
from hvd_elastic.discovery.rules.pod_verdict import AtRisk, EligibilityRules, LeftOut, Reason
from hvd_elastic.discovery.snapshot import (
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

__all__ = [
    "AtRisk",
    "EligibilityRules",
    "EligibleHosts",
    "Host",
    "LeftOut",
    "MissingSnapshotError",
    "NodeView",
    "PodView",
    "Reason",
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
