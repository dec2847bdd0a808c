"""kube-scheduler as far as it matters here: which pod is bound where, and who leaves for it.

A pod is tried when it comes, and again whenever room comes. The queue holds nobody up: a pod that failed waits for an
event that may help it (queueing hints), and its backoff of 1 to 10 s is skipped while no other pod is to be tried
(`SchedulerPopFromBackoffQ`, on since Kubernetes 1.33).
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import count

from hvd_elastic.decide.simulate.engine.node_table import NodeTable
from hvd_elastic.decide.simulate.engine.scheduled_pod import ScheduledPod, ServingPod, WorkerPod


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod was bound to a node."""

    pod: ScheduledPod


@dataclass(frozen=True, slots=True)
class Eviction:
    """A worker has to leave for a pod of inference."""

    worker: WorkerPod


class KubeScheduler:
    """The pods that wait. Inference comes before training; equals come in the order of their creation."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._serving: dict[ServingPod, None] = {}
        self._workers: dict[tuple[int, frozenset[int]], OrderedDict[WorkerPod, int]] = {}
        """By their GPUs and the nodes that they keep off; the first was created first. Each with its place among all.
        """
        self._order = count()
        self._decisions: list[Binding | Eviction] = []

    @property
    def stuck(self) -> Counter[int]:
        """Pods of inference by their GPUs that have no room, and for which nobody leaves."""
        return Counter(pod.gpus for pod in self._serving if pod.nominated is None)

    def add(self, pod: ScheduledPod) -> None:
        """A pod was created now."""
        if isinstance(pod, ServingPod):
            self._serving[pod] = None
        elif isinstance(pod, WorkerPod):
            self._workers.setdefault((pod.gpus, pod.keeps_off), OrderedDict())[pod] = next(self._order)

    def remove(self, worker: WorkerPod) -> None:
        """A worker that waits was deleted."""
        del self._workers[worker.gpus, worker.keeps_off][worker]

    def schedule(self, now: float) -> list[Binding | Eviction]:
        """All that can be decided now."""
        self._decisions = []
        self._schedule_inference(now)
        self._schedule_workers(now)
        return self._decisions

    def _schedule_inference(self, now: float) -> None:
        failed: set[int] = set()
        for pod in list(self._serving):
            if pod.nominated is None and pod.gpus in failed:
                continue
            node = self._nodes.fitting(pod)
            if node is not None:
                self._bind(pod, node, now)
                del self._serving[pod]
            elif pod.nominated is None and not self._preempt_for(pod):
                failed.add(pod.gpus)

    def _preempt_for(self, pod: ServingPod) -> bool:
        found = self._nodes.preemptible(pod.gpus)
        if found is None:
            return False
        node, victims = found
        self._nodes.nominate(pod, node)
        for victim in victims:
            if not victim.leaving:
                victim.leaving = True
                self._decisions.append(Eviction(victim))
        return True

    def _schedule_workers(self, now: float) -> None:
        while True:
            firsts = [next(iter(waiting.items())) for waiting in self._workers.values() if waiting]
            fitting = [
                (place, worker, node)
                for worker, place in firsts
                if (node := self._nodes.roomiest(worker.gpus, keeps_off=worker.keeps_off)) is not None
            ]
            if not fitting:
                return
            _, worker, node = min(fitting, key=lambda found: found[0])
            self.remove(worker)
            self._bind(worker, node, now)

    def _bind(self, pod: ScheduledPod, node: int, now: float) -> None:
        self._nodes.bind(pod, node, now)
        self._decisions.append(Binding(pod))
