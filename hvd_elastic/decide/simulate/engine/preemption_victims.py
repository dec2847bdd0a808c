"""Whom kube-scheduler evicts for a pod that finds no room.

`SelectVictimsOnNode` takes all pods of lower priority from a node, and gives back as many as it can, the most
important first: among equals the one that started first (`MoreImportantPod`). `pickOneNodeForPreemption` then takes the
node with the fewest violated disruption budgets, the lowest highest priority, the smallest sum of priorities, the
fewest victims, and the latest start of its longest-running victim. All workers have one priority here and no budget,
so that the last two decide. Both are in kube-scheduler 1.34, `framework/preemption/preemption.go` and
`framework/plugins/defaultpreemption/default_preemption.go`.

A large cluster's scheduler looks at a tenth of its nodes from a random one on (at least 100); here at all of them.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPod


def victims_on(room: int, workers: Iterable[WorkerPod], gpus: int) -> tuple[WorkerPod, ...]:
    """The workers that must leave so that `gpus` fit into `room`, which the workers hold in part. Empty: no way."""
    spare = room - gpus
    if spare < 0:
        return ()
    victims = []
    for worker in sorted(workers, key=_importance):
        if worker.gpus <= spare:
            spare -= worker.gpus
        else:
            victims.append(worker)
    return tuple(victims)


def _importance(worker: WorkerPod) -> tuple[float, int, int]:
    return worker.bound, worker.job, worker.index


class CandidateNodes:
    """The nodes in the order in which they would be picked, for pods of one size."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, int]] = []

    def offer(self, node: int, version: int, victims: tuple[WorkerPod, ...]) -> None:
        """A node as it is now. What was offered of its older versions is forgotten."""
        if victims:
            heappush(self._heap, (len(victims), -min(victim.bound for victim in victims), node, version))

    def best(self, versions: list[int]) -> int | None:
        """The node to be picked; None: no node has victims enough."""
        while self._heap:
            _, _, node, version = self._heap[0]
            if versions[node] == version:
                return node
            heappop(self._heap)
        return None
