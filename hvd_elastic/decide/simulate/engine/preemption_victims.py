"""Whom kube-scheduler evicts for a pod that finds no room.

`SelectVictimsOnNode` takes all pods of lower priority from a node, and gives back as many as it can, the most
important first: among equals the one that started first (`MoreImportantPod`). `pickOneNodeForPreemption` then takes the
node with the fewest violated disruption budgets, the lowest highest priority, the smallest sum of priorities, the
fewest victims, and the latest start of its longest-running victim. All workers have one priority here and no budget,
so that the last two decide. Both are in kube-scheduler 1.34, `framework/preemption/preemption.go` and
`framework/plugins/defaultpreemption/default_preemption.go`.

A large cluster's scheduler looks at a tenth of its nodes from a random one on (at least 100); here at all of them.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

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
        self._ordered: list[tuple[int, float, int]] = []
        """The number of victims, the earliest start of one with a minus, and the node."""
        self._offered: dict[int, tuple[int, float, int]] = {}

    def offer(self, node: int, victims: tuple[WorkerPod, ...]) -> None:
        """A node as it is now, in place of what it was. One without victims is not picked."""
        if node in self._offered:
            del self._ordered[bisect_left(self._ordered, self._offered.pop(node))]
        if victims:
            offered = len(victims), -min(victim.bound for victim in victims), node
            self._offered[node] = offered
            insort(self._ordered, offered)

    def best(self) -> int | None:
        """The node to be picked; None: no node has victims enough."""
        return self._ordered[0][2] if self._ordered else None
