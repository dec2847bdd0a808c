"""A cluster autoscaler: it buys nodes for pods that have no room, and takes away those that nobody needs.

GPUs that pods wait for, chunks without room ──► nodes to add ──► after the delay, a node of the table
bought nodes without a pod, less those that chunks need ──► unneeded for 600 s ──► gone, and paid for

Whom it buys for is as in Cluster Autoscaler (kubernetes/autoscaler, `cluster-autoscaler/`):

- Pods without room whose priority is at least `--expendable-pods-priority-cutoff`, -10: inference, and training too,
  whose classes are far above it (`core/podlistprocessor/filter_out_expendable.go`). Pods that have a nominated node
  wait for victims: nothing is bought for them, and their GPUs count as taken.
- No pod for which a node on its way has room (`filter_out_schedulable.go`). Others fill new nodes, the largest first
  (`estimator/binpacking_estimator.go`).
- Not before one of the pods is 30 s old (`core/static_autoscaler.go`, `unschedulablePodWithGpuTimeBuffer`).
- The chunks of a capacity buffer: pods that do not exist, and that have always been there
  (`processors/capacitybuffer/pod_list_processor.go`). They have room wherever a GPU is free, and keep that node.

It takes away empty nodes alone. Cluster Autoscaler also drains one of which less than half is used, if its pods have
room elsewhere.
"""

from collections import Counter
from functools import partial
from itertools import count
from typing import Final

from hvd_elastic.decide.simulate.autoscaling.node_scaling import nodes_to_add, unneeded_nodes
from hvd_elastic.decide.simulate.day import NodeGroup
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase

YOUNG_SECONDS: Final = 30.0
"""GPUs cost much, so it waits so long for more pods before it buys."""
_FIRST_NUMBER: Final = 10**12
"""Of bought nodes: after those of the day, of which more come as the day goes on."""
_THERE: Final = (WorkerPhase.STARTING, WorkerPhase.READY, WorkerPhase.MEMBER)


class ClusterAutoscaler:
    """Of one group of nodes."""

    def __init__(self, cluster: ClusterDay, group: NodeGroup, *, shared: bool) -> None:
        """`shared`: jobs ask for no worker that has no room, but for their min."""
        self._cluster, self._group, self._shared = cluster, group, shared
        self._numbers = count(_FIRST_NUMBER)
        self._coming: dict[int, float] = {}
        """Since when each node is paid for: from the call on."""
        self._there: dict[int, float] = {}
        self._unneeded: dict[int, float] = {}
        self._gone = 0.0
        """GPU-seconds of nodes that were taken away."""
        self._waits_since = float("inf")

    def bought(self, now: float) -> float:
        """GPU-seconds of all nodes, from the call until they were taken away."""
        return self._gone + sum(self._paid(since, now) for since in (*self._coming.values(), *self._there.values()))

    def look(self, now: float) -> float:
        """Buy and take away. Returns when to look again though nothing happens."""
        return min(self._add(now), self._take_away(now))

    def _add(self, now: float) -> float:
        waiting = self._waiting()
        self._waits_since = min(self._waits_since, now) if waiting else float("inf")
        roomless = max(self._cluster.chunks - self._cluster.table.free, 0)
        if not roomless and now < self._waits_since + YOUNG_SECONDS:
            return self._waits_since + YOUNG_SECONDS
        waiting[1] += roomless
        for _ in range(nodes_to_add(waiting, self._group, coming=len(self._coming), there=len(self._there))):
            number = next(self._numbers)
            self._coming[number] = now
            self._cluster.at(now + self._group.delay_seconds, partial(self._join, number))
        return float("inf")

    def _waiting(self) -> Counter[int]:
        """Pods without room, by their GPUs."""
        waiting = self._cluster.stuck
        for run in self._cluster.runs:
            if pending := self._pending(run):
                waiting[run.job.gpus] += pending
        return waiting

    def _pending(self, run: JobRun) -> int:
        pending = run.workers.count(WorkerPhase.PENDING)
        if not self._shared:
            return pending
        return min(pending, max(run.job.min - sum(map(run.workers.count, _THERE)), 0))

    def _take_away(self, now: float) -> float:
        table, gpus = self._cluster.table, self._group.gpus
        empty = [number for number in self._there if table.rooms[number].available == gpus]
        spare = max(table.free - self._cluster.chunks, 0)
        self._unneeded = unneeded_nodes(empty, self._unneeded, spare // gpus, now)
        for number in [one for one, since in self._unneeded.items() if now - since >= self._group.unneeded_seconds]:
            del self._unneeded[number]
            self._gone += self._paid(self._there.pop(number), now)
            self._cluster.at(now, partial(self._leave, number))
        return min(self._unneeded.values(), default=float("inf")) + self._group.unneeded_seconds

    def _join(self, number: int, _now: float) -> None:
        self._there[number] = self._coming.pop(number)
        self._cluster.table.add(number, self._group.gpus)

    def _leave(self, number: int, _now: float) -> None:
        self._cluster.table.remove(number)

    def _paid(self, since: float, now: float) -> float:
        return self._group.gpus * (now - since)
