"""Which node has room for how many GPUs, and who holds them. No question costs a look at every node."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from hvd_elastic.decide.simulate.engine.preemption_victims import CandidateNodes, victims_on
from hvd_elastic.decide.simulate.engine.scheduled_pod import ScheduledPod, WorkerPod


@dataclass(slots=True, eq=False)
class NodeRoom:
    """One node that is there."""

    gpus: int
    open: bool = True
    """Pods may be bound to it."""
    used: int = 0
    nominated: int = 0
    """GPUs promised to pods whose victims are leaving."""
    serving: int = 0
    """GPUs that pods of inference hold."""
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


class NodeHeap:
    """Numbers of nodes, the least first, each of them once: one that is pushed again and again takes no more room."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._members: set[int] = set()

    @property
    def first(self) -> int | None:
        return self._heap[0] if self._heap else None

    def push(self, node: int) -> None:
        if node not in self._members:
            self._members.add(node)
            heappush(self._heap, node)

    def pop(self) -> None:
        self._members.remove(heappop(self._heap))


class NodeTable:
    """All nodes, by number."""

    def __init__(self, nodes: int, *, unit: int = 1) -> None:
        self.rooms: list[NodeRoom | None] = [None] * nodes
        self.lendable = 0
        """GPUs that inference leaves to training, as far as whole workers of `unit` GPUs fit on their nodes."""
        self._unit = unit
        self._lent = [0] * nodes
        self._versions = [0] * nodes
        self._by_room: defaultdict[tuple[int, int], NodeHeap] = defaultdict(NodeHeap)
        self._candidates: dict[int, CandidateNodes] = {}

    def add(self, node: int, gpus: int) -> None:
        """A node has come."""
        self.rooms[node] = NodeRoom(gpus)
        self._changed(node)

    def close(self, node: int) -> list[ScheduledPod]:
        """No pod is bound to the node any more. Returns the pods that are on it."""
        room = self.room(node)
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
        self.rooms[node] = None
        return pods

    def room(self, node: int) -> NodeRoom:
        """Of a node that is there."""
        room = self.rooms[node]
        assert room is not None
        return room

    def bind(self, pod: ScheduledPod, node: int, now: float) -> None:
        """The pod holds its GPUs from now on."""
        self.withdraw_nomination(pod)
        pod.node, pod.bound = node, now
        self._hold(pod, pod.gpus)
        self.room(node).pods[pod] = None
        self._changed(node)

    def release(self, pod: ScheduledPod) -> None:
        """Free the GPUs of a bound pod."""
        node = pod.node
        assert node is not None
        self._hold(pod, -pod.gpus)
        del self.room(node).pods[pod]
        pod.node = None
        self._changed(node)

    def nominate(self, pod: ScheduledPod, node: int) -> None:
        """Promise the room of victims that leave."""
        room = self.room(node)
        pod.nominated = node
        room.nominated += pod.gpus
        room.nominees[pod] = None
        self._changed(node)

    def withdraw_nomination(self, pod: ScheduledPod) -> None:
        """Nothing if it has none."""
        node, pod.nominated = pod.nominated, None
        if node is not None:
            room = self.room(node)
            room.nominated -= pod.gpus
            del room.nominees[pod]
            self._changed(node)

    def fitting(self, pod: ScheduledPod) -> int | None:
        """The node to bind a pod to: its nominated one if all have room that it is promised to, else the roomiest."""
        if pod.nominated is not None and self.room(pod.nominated).available >= 0:
            return pod.nominated
        return self.roomiest(pod.gpus)

    def roomiest(self, gpus: int) -> int | None:
        """`NodeResourcesFit` with `LeastAllocated`, kube-scheduler's default: the largest free part, then the first."""
        best: tuple[float, int] | None = None
        for (available, size), nodes in self._by_room.items():
            if available >= gpus and (node := self._first(nodes, available)) is not None:
                found = (gpus - available) / size, node
                best = found if best is None else min(best, found)
        return best[1] if best else None

    def preemptible(self, gpus: int) -> tuple[int, tuple[WorkerPod, ...]] | None:
        """The node and the workers to evict for a pod of this size; None: it has to wait."""
        if gpus not in self._candidates:
            self._candidates[gpus] = CandidateNodes(self._versions)
            for node, room in enumerate(self.rooms):
                if room is not None:
                    self._offer(node, room, gpus)
        best = self._candidates[gpus].best()
        return None if best is None else (best, self._victims(self.room(best), gpus))

    def _hold(self, pod: ScheduledPod, gpus: int) -> None:
        assert pod.node is not None
        room = self.room(pod.node)
        room.used += gpus
        if not isinstance(pod, WorkerPod):
            room.serving += gpus

    def _first(self, nodes: NodeHeap, available: int) -> int | None:
        while (node := nodes.first) is not None:
            room = self.rooms[node]
            if room is not None and room.available == available:
                return node
            nodes.pop()
        return None

    def _changed(self, node: int) -> None:
        room = self.room(node)
        self._versions[node] += 1
        lent = room.left_to_training // self._unit * self._unit
        self.lendable += lent - self._lent[node]
        self._lent[node] = lent
        if room.available > 0:
            self._by_room[room.available, room.gpus].push(node)
        for gpus in self._candidates:
            self._offer(node, room, gpus)

    def _offer(self, node: int, room: NodeRoom, gpus: int) -> None:
        self._candidates[gpus].offer(node, self._victims(room, gpus))

    def _victims(self, room: NodeRoom, gpus: int) -> tuple[WorkerPod, ...]:
        if not room.open or room.available >= gpus:
            return ()
        return victims_on(room.gpus - room.serving - room.nominated, room.workers(), gpus)
