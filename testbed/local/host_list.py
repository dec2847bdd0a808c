"""The list of hosts as the discovery sidecar writes it, for jobs without one."""

import time
from collections.abc import Iterable
from pathlib import Path

from hvd_elastic.discovery.snapshot import Host, Snapshot, uptime_seconds, write_snapshot
from hvd_elastic.mpijob.contract import SnapshotState


def put_hosts(
    run_dir: Path, hosts: Iterable[Host], generation: int, *, state: SnapshotState = SnapshotState.OK
) -> None:
    """Put exactly these on the list, as of now."""
    now, unix = uptime_seconds(), int(time.time())
    snapshot = Snapshot(hosts=tuple(hosts), generation=generation, uptime_seconds=now, unix_seconds=unix, state=state)
    write_snapshot(run_dir, snapshot)
