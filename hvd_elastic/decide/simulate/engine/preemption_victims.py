"""Whom kube-scheduler evicts for a pod that finds no room.

`SelectVictimsOnNode` takes all pods of lower priority from a node, and gives back as many as it can, the most
important first: among equals the one that started first (`MoreImportantPod`). `pickOneNodeForPreemption` then takes the
node with the fewest violated disruption budgets, the lowest highest priority, the smallest sum of priorities, the
fewest victims, and the latest start of its longest-running victim. All workers have one priority here and no budget,
so that the last two decide. Both are in kube-scheduler 1.34, `framework/preemption/preemption.go` and
`framework/plugins/defaultpreemption/default_preemption.go`.

A large cluster's scheduler looks at a tenth of its nodes from a random one on (at least 100); here at all of them.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

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

    def __init__(self, versions: Sequence[int]) -> None:
        """`versions`: the present one of each node. The caller changes them."""
        self._versions = versions
        self._heap: list[tuple[int, float, int, int]] = []

    def __len__(self) -> int:
        """Nodes that are kept, those too that have changed since: twice as many as there are nodes, at most."""
        return len(self._heap)

    def offer(self, node: int, victims: tuple[WorkerPod, ...]) -> None:
        """A node as it is now. What was offered of its older versions is forgotten."""
        if not victims:
            return
        if len(self._heap) >= 2 * len(self._versions):
            self._heap = [offered for offered in self._heap if self._is_present(offered)]
            heapify(self._heap)
        latest = -min(victim.bound for victim in victims)
        heappush(self._heap, (len(victims), latest, node, self._versions[node]))

    def best(self) -> int | None:
        """The node to be picked; None: no node has victims enough."""
        while self._heap:
            if self._is_present(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def _is_present(self, offered: tuple[int, float, int, int]) -> bool:
        _, _, node, version = offered
        return self._versions[node] == version
