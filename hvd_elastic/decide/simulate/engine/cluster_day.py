"""The cluster in the course of the day: nodes come and go, pods are bound and evicted, jobs respond."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge
from itertools import count
from operator import itemgetter
from statistics import NormalDist
from typing import Final

from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.engine.event_queue import EventQueue, TimedAction
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord
from hvd_elastic.decide.simulate.engine.job_run import JobRun
from hvd_elastic.decide.simulate.engine.job_workers import MemberLoss
from hvd_elastic.decide.simulate.engine.kube_scheduler import Binding, KubeScheduler
from hvd_elastic.decide.simulate.engine.node_table import NodeTable
from hvd_elastic.decide.simulate.engine.scheduled_pod import ScheduledPod, ServingPod, WorkerPod
from hvd_elastic.decide.simulate.workload import Stalls

_GOLDEN_RATIO: Final = (1 + 5**0.5) / 2
_NORMAL: Final = NormalDist()


class ClusterDay:
    """Plays a day. What jobs ask of their surroundings is here."""

    def __init__(self, day: Day, stalls: Stalls, *, unit: int = 1) -> None:
        self.seconds = day.seconds
        """How long it is."""
        self.waits = InferenceRecord()
        """Of each pod of inference that runs, from its creation on."""
        self.runs: list[JobRun] = []
        self.on_change: list[Callable[[float], object]] = []
        """Called after each moment in which something has happened, in this order."""
        self.chunks = 0
        """Of one GPU each, of a capacity buffer: a cluster autoscaler is to keep room for so many."""
        self.table = NodeTable(unit=unit)
        self._stalls = stalls
        self._scheduler = KubeScheduler(self.table)
        self._asked = count(1)
        self._touched: dict[JobRun, None] = {}
        nodes = ((node.since, partial(self._add_node, number, node)) for number, node in enumerate(day.nodes))
        pods = ((pod.created, partial(self._ask_for, pod)) for pod in day.pods)
        self._queue = EventQueue(merge(nodes, pods, key=itemgetter(0)))

    @property
    def stuck(self) -> Counter[int]:
        """Pods of inference by their GPUs that have no room, and for which nobody leaves."""
        return self._scheduler.stuck

    @property
    def lendable(self) -> int:
        """GPUs that inference neither holds nor is promised."""
        return self.table.lendable

    def moments(self, last: float) -> Iterator[float]:
        """Play on until a second, that included: each second in which something has happened, once all of it has."""
        while (now := self._queue.next_second()) <= last:
            while self._queue.next_second() == now:
                while self._queue.next_second() == now:
                    self._queue.pop()(now)
                self._settle(now)
            for look in self.on_change:
                look(now)
            yield now

    def at(self, second: float, action: TimedAction) -> int:
        """Do something later. The number is for `cancel`."""
        return self._queue.at(second, action)

    def cancel(self, number: int) -> None:
        """What `at` has set is not to happen. Nothing if it has happened."""
        self._queue.cancel(number)

    def create(self, pod: ScheduledPod) -> None:
        """It waits for room from now on."""
        self._scheduler.add(pod)

    def withdraw(self, pod: WorkerPod) -> None:
        """It waits for room no longer."""
        self._scheduler.remove(pod)

    def release(self, pod: ScheduledPod) -> None:
        """Its GPUs are free."""
        self.table.release(pod)

    def touch(self, run: JobRun) -> None:
        """It has to respond once all that happens in this moment has happened."""
        self._touched[run] = None

    def _settle(self, now: float) -> None:
        while True:
            while self._touched:
                run = next(iter(self._touched))
                del self._touched[run]
                run.respond(now)
            decisions = self._scheduler.schedule(now)
            for decision in decisions:
                if not isinstance(decision, Binding):
                    self.runs[decision.worker.job].workers.tell(decision.worker, now)
                elif isinstance(decision.pod, WorkerPod):
                    self._start(decision.pod, now)
                elif isinstance(decision.pod, ServingPod):
                    self._serve(decision.pod, now)
            if not decisions:
                return

    def _start(self, worker: WorkerPod, now: float) -> None:
        assert worker.node is not None
        times = self.table.rooms[worker.node].slow
        if times > 1.0:
            self.runs[worker.job].slow_down(worker, times, now)
        self.runs[worker.job].workers.bound(worker, now)

    def _ask_for(self, pod: InferencePod, now: float) -> None:
        self._serve_later(pod.gpus, pod.seconds, now)

    def _serve_later(self, gpus: int, seconds: float, now: float) -> None:
        """Multiples of the golden ratio, less whole numbers, fill the range between 0 and 1 evenly, without a seed."""
        part = next(self._asked) * _GOLDEN_RATIO % 1.0
        start = self._stalls.bind * math.exp(self._stalls.bind_sigma * _NORMAL.inv_cdf(part))
        self.create(ServingPod(gpus=gpus, created=now, start=start if now else 0.0, seconds=seconds))

    def _serve(self, pod: ServingPod, now: float) -> None:
        pod.running = now + pod.start
        if pod.created:
            self.waits.note(pod.running - pod.created)
        pod.end = self._queue.at(pod.running + pod.seconds, lambda _now: self.table.release(pod))

    def _add_node(self, number: int, node: NodeLife, now: float) -> None:
        self.table.add(number, node.gpus)
        if node.notice_seconds:
            self._queue.at(max(node.until - node.notice_seconds, now), partial(self._drain_node, number, node))
        if node.slow_since < node.until:
            self._queue.at(max(node.slow_since, now), partial(self._slow_node, number, node))
        self._queue.at(node.until, partial(self._lose_node, number, node))

    def _slow_node(self, number: int, node: NodeLife, now: float) -> None:
        room = self.table.rooms[number]
        room.slow = node.slow_times
        for worker in room.workers():
            self.runs[worker.job].slow_down(worker, node.slow_times, now)

    def _drain_node(self, number: int, node: NodeLife, now: float) -> None:
        for pod in self.table.close(number):
            if isinstance(pod, WorkerPod):
                self.runs[pod.job].workers.tell(pod, now, grace=node.until - now)
            elif isinstance(pod, ServingPod):
                self.table.release(pod)
                self._move_elsewhere(pod, now)

    def _lose_node(self, number: int, node: NodeLife, now: float) -> None:
        how = MemberLoss.KILLED if node.notice_seconds else MemberLoss.NODE_LOST
        for pod in self.table.remove(number):
            if isinstance(pod, WorkerPod):
                self.runs[pod.job].workers.lose(pod, how, now)
            elif isinstance(pod, ServingPod):
                self._move_elsewhere(pod, now)

    def _move_elsewhere(self, pod: ServingPod, now: float) -> None:
        """Its ReplicaSet makes another one, which does the rest of the work."""
        self._queue.cancel(pod.end)
        left = pod.seconds - max(now - pod.running, 0.0)
        self._serve_later(pod.gpus, max(left, 0.0), now)
