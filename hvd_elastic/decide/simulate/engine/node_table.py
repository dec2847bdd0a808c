"""Which node has room for how many GPUs, and who holds them. No question costs a look at every node."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from hvd_elastic.decide.simulate.engine.preemption_victims import CandidateNodes, victims_on
from hvd_elastic.decide.simulate.engine.scheduled_pod import ScheduledPod, WorkerPod


@dataclass(slots=True, eq=False)
class NodeRoom:
    """One node that is there."""

    gpus: int
    open: bool = True
    """Pods may be bound to it."""
    slow: float = 1.0
    """Workers on it take so many times as long."""
    used: int = 0
    nominated: int = 0
    """GPUs promised to pods whose victims are leaving."""
    serving: int = 0
    """GPUs that pods of inference hold."""
    lent: int = 0
    """Of `NodeTable.lendable`."""
    found_at: int = 0
    """The `available` at which the table finds it."""
    pods: dict[ScheduledPod, None] = field(default_factory=dict)
    nominees: dict[ScheduledPod, None] = field(default_factory=dict)

    @property
    def available(self) -> int:
        """GPUs that nobody holds and that are promised to nobody."""
        return self.gpus - self.used - self.nominated if self.open else 0

    @property
    def left_to_training(self) -> int:
        """GPUs that inference neither holds nor is promised."""
        return max(self.gpus - self.serving - self.nominated, 0) if self.open else 0

    def workers(self) -> Iterable[WorkerPod]:
        """All that hold GPUs, those too that are leaving."""
        return (pod for pod in self.pods if isinstance(pod, WorkerPod))


class NodeTable:
    """The nodes that are there, by number."""

    def __init__(self, *, unit: int = 1) -> None:
        self.rooms: dict[int, NodeRoom] = {}
        self.lendable = 0
        """GPUs that inference leaves to training, as far as whole workers of `unit` GPUs fit on their nodes."""
        self.free = 0
        """GPUs that nobody holds and that are promised to nobody."""
        self.serving = 0
        """GPUs that pods of inference hold."""
        self.promised = 0
        """GPUs that pods of inference wait for, and that workers give back."""
        self._unit = unit
        self._by_room: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """The nodes with so many GPUs available of so many, in order."""
        self._candidates: dict[int, CandidateNodes] = {}

    def add(self, node: int, gpus: int) -> None:
        """A node has come."""
        self.rooms[node] = NodeRoom(gpus)
        self._changed(node)

    def close(self, node: int) -> list[ScheduledPod]:
        """No pod is bound to the node any more. Returns the pods that are on it."""
        room = self.rooms[node]
        for pod in list(room.nominees):
            self.withdraw_nomination(pod)
        room.open = False
        self._changed(node)
        return list(room.pods)

    def remove(self, node: int) -> list[ScheduledPod]:
        """The node is gone. Returns the pods that were on it."""
        pods = self.close(node)
        for pod in pods:
            pod.node = None
        self.serving -= self.rooms[node].serving
        del self.rooms[node]
        return pods

    def bind(self, pod: ScheduledPod, node: int, now: float) -> None:
        """The pod holds its GPUs from now on."""
        self.withdraw_nomination(pod)
        pod.node, pod.bound = node, now
        self._hold(pod, pod.gpus)
        self.rooms[node].pods[pod] = None
        self._changed(node)

    def release(self, pod: ScheduledPod) -> None:
        """Free the GPUs of a bound pod."""
        node = pod.node
        assert node is not None
        self._hold(pod, -pod.gpus)
        del self.rooms[node].pods[pod]
        pod.node = None
        self._changed(node)

    def nominate(self, pod: ScheduledPod, node: int) -> None:
        """Promise the room of victims that leave."""
        room = self.rooms[node]
        pod.nominated = node
        room.nominated += pod.gpus
        self.promised += pod.gpus
        room.nominees[pod] = None
        self._changed(node)

    def withdraw_nomination(self, pod: ScheduledPod) -> None:
        """Nothing if it has none."""
        node, pod.nominated = pod.nominated, None
        if node is not None:
            room = self.rooms[node]
            room.nominated -= pod.gpus
            self.promised -= pod.gpus
            del room.nominees[pod]
            self._changed(node)

    def fitting(self, pod: ScheduledPod) -> int | None:
        """The node to bind a pod to: its nominated one if all have room that it is promised to, else the roomiest."""
        if pod.nominated is not None and self.rooms[pod.nominated].available >= 0:
            return pod.nominated
        return self.roomiest(pod.gpus)

    def roomiest(self, gpus: int, *, keeps_off: Collection[int] = ()) -> int | None:
        """`NodeResourcesFit` with `LeastAllocated`, kube-scheduler's default: the largest free part, then the first."""
        best: tuple[float, int] | None = None
        for (available, size), nodes in self._by_room.items():
            first = next((node for node in nodes if node not in keeps_off), None) if available >= gpus else None
            if first is not None:
                found = (gpus - available) / size, first
                best = found if best is None else min(best, found)
        return best[1] if best else None

    def preemptible(self, gpus: int) -> tuple[int, tuple[WorkerPod, ...]] | None:
        """The node and the workers to evict for a pod of this size; None: it has to wait."""
        if gpus not in self._candidates:
            self._candidates[gpus] = CandidateNodes()
            for node, room in self.rooms.items():
                self._offer(node, room, gpus)
        best = self._candidates[gpus].best()
        return None if best is None else (best, self._victims(self.rooms[best], gpus))

    def _hold(self, pod: ScheduledPod, gpus: int) -> None:
        assert pod.node is not None
        room = self.rooms[pod.node]
        room.used += gpus
        if not isinstance(pod, WorkerPod):
            room.serving += gpus
            self.serving += gpus

    def _changed(self, node: int) -> None:
        room = self.rooms[node]
        lent = room.left_to_training // self._unit * self._unit
        self.lendable += lent - room.lent
        room.lent = lent
        self._find_at(node, room, max(room.available, 0))
        for gpus in self._candidates:
            self._offer(node, room, gpus)

    def _find_at(self, node: int, room: NodeRoom, available: int) -> None:
        if available == room.found_at:
            return
        if room.found_at:
            nodes = self._by_room[room.found_at, room.gpus]
            del nodes[bisect_left(nodes, node)]
        if available:
            insort(self._by_room[available, room.gpus], node)
        self.free += available - room.found_at
        room.found_at = available

    def _offer(self, node: int, room: NodeRoom, gpus: int) -> None:
        self._candidates[gpus].offer(node, self._victims(room, gpus))

    def _victims(self, room: NodeRoom, gpus: int) -> tuple[WorkerPod, ...]:
        if not room.open or room.available >= gpus:
            return ()
        return victims_on(room.gpus - room.serving - room.nominated, room.workers(), gpus)
