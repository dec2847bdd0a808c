"""The workers of one job: asked for, bound, Ready, told to leave, gone."""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Protocol

from hvd_elastic.decide.simulate.engine.event_queue import TimedAction
from hvd_elastic.decide.simulate.engine.job_progress import JobProgress
from hvd_elastic.decide.simulate.engine.scheduled_pod import ScheduledPod, WorkerPhase, WorkerPod
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls
from hvd_elastic.policy.allowed_sizes import largest_size


class MemberLoss(Enum):
    """How a member left."""

    TOLD = auto()
    KILLED = auto()
    """Without a word, its node is there."""
    NODE_LOST = auto()


class JobSurroundings(Protocol):
    """What a job asks of the cluster."""

    def create(self, pod: ScheduledPod) -> None:
        """It waits for room from now on."""

    def release(self, pod: ScheduledPod) -> None:
        """Its GPUs are free."""

    def withdraw(self, pod: WorkerPod) -> None:
        """It waits for room no longer."""

    def at(self, second: float, action: TimedAction) -> int:
        """Do something later. The number is for `cancel`."""


_BOUND = (WorkerPhase.STARTING, WorkerPhase.READY, WorkerPhase.MEMBER, WorkerPhase.UNUSED)
_FIRST_TO_GO = (WorkerPhase.PENDING, *_BOUND)
"""When a job is to have fewer workers: those without a node first, the members last."""


class JobWorkers:
    """Keeps `progress` told of how many there are in each phase, and calls `changed` when that has changed."""

    def __init__(
        self,
        number: int,
        progress: JobProgress,
        stalls: Stalls,
        around: JobSurroundings,
        *,
        phase_when_ready: Callable[[WorkerPod], WorkerPhase],
        changed: Callable[[], None],
    ) -> None:
        self.wanted = 0
        self.departures: dict[int, MemberLoss] = {}
        """Of members, by their index, since `dismiss` was called."""
        self.noticed: list[WorkerPod] = []
        """Told to leave since then."""
        self.excluded: dict[int, float] = {}
        """Node to the second until which workers to come keep off it."""
        self._number = number
        self._job: SimulatedJob = progress.job
        self._progress = progress
        self._stalls = stalls
        self._around = around
        self._phase_when_ready = phase_when_ready
        self._changed = changed
        self._phases: dict[WorkerPhase, dict[WorkerPod, None]] = {phase: {} for phase in WorkerPhase}
        self._live: dict[int, WorkerPod] = {}
        self._knows_slow = False

    def of(self, phase: WorkerPhase) -> list[WorkerPod]:
        """The workers in this phase, in the order in which they came into it."""
        return list(self._phases[phase])

    def count(self, phase: WorkerPhase) -> int:
        """How many workers are in this phase."""
        return len(self._phases[phase])

    @property
    def usable(self) -> int:
        """Workers of which a world could be formed now."""
        return self.count(WorkerPhase.MEMBER) + self.count(WorkerPhase.READY)

    @property
    def reachable_size(self) -> int:
        """The size of the largest world that could be formed now. Below the smallest: as many as there are."""
        return largest_size(self._job.sizes, self.usable)

    def want(self, workers: int, now: float) -> None:
        """Have so many workers: new ones are asked for, or some are told to leave."""
        self.wanted = min(workers, self._job.max)
        for index in range(self._job.max):
            if len(self._live) >= self.wanted:
                break
            self._ask(index, now)
        for worker in self._surplus():
            if worker.phase is WorkerPhase.PENDING:
                self._drop(worker, now)
            else:
                self.tell(worker, now)

    def bound(self, worker: WorkerPod, now: float) -> None:
        """A worker has got its GPUs."""
        self._move(worker, WorkerPhase.STARTING, now)
        self._around.at(now + self._stalls.pod_start, partial(self._started, worker))

    def tell(self, worker: WorkerPod, now: float, *, grace: float | None = None) -> None:
        """The worker has to leave, within its grace."""
        if worker.phase not in _BOUND:
            return
        if worker.phase is WorkerPhase.MEMBER:
            self.departures[worker.index] = MemberLoss.TOLD
        worker.leaving = True
        worker.grace = self._job.grace_seconds if grace is None else min(grace, self._job.grace_seconds)
        self.noticed.append(worker)
        self._move(worker, WorkerPhase.LEAVING, now)

    def slow_down(self, worker: WorkerPod, times: float, now: float) -> None:
        """The worker takes so many times as long from now on."""
        self._progress.advance(now)
        worker.slow, worker.slow_since, self._knows_slow = times, now, True
        self._progress.slowest = self._slowest()

    def lose(self, worker: WorkerPod, how: MemberLoss, now: float) -> None:
        """The worker's node is gone."""
        if worker.phase is WorkerPhase.MEMBER:
            self.departures[worker.index] = how
        replaced = now if how is MemberLoss.KILLED else now + self._stalls.node_replaced
        self._move(worker, WorkerPhase.GONE, now)
        self._around.at(replaced, partial(self._replace, worker))

    def dismiss(self, handover: float, now: float) -> None:
        """Those that were told leave once `gpu_free` and the handover are over, and not after their grace."""
        self.departures.clear()
        for worker in self.noticed:
            seconds = min(self._stalls.gpu_free + handover, worker.grace)
            self._around.at(now + seconds, partial(self._left, worker))
        self.noticed.clear()

    def form(self, now: float) -> None:
        """The largest world that is allowed, of its members first. Who is left over is READY, and waits."""
        usable = [*self.of(WorkerPhase.MEMBER), *self.of(WorkerPhase.READY)]
        for place, worker in enumerate(usable):
            phase = WorkerPhase.MEMBER if place < largest_size(self._job.sizes, len(usable)) else WorkerPhase.READY
            if phase is not worker.phase:
                self._move(worker, phase, now)

    def move_all(self, phase: WorkerPhase, to: WorkerPhase, now: float) -> None:
        for worker in self.of(phase):
            self._move(worker, to, now)

    def end(self, now: float) -> None:
        """All go at once, and none comes any more."""
        self.wanted = 0
        for phase in WorkerPhase:
            for worker in self.of(phase):
                self._drop(worker, now)

    def _ask(self, index: int, now: float) -> None:
        if index in self._live:
            return
        keeps_off = frozenset(node for node, until in self.excluded.items() if until > now)
        worker = WorkerPod(gpus=self._job.gpus, created=now, job=self._number, index=index, keeps_off=keeps_off)
        self._live[index] = worker
        self._phases[WorkerPhase.PENDING][worker] = None
        self._around.create(worker)

    def _surplus(self) -> list[WorkerPod]:
        """Those that wait go first, then the last that came."""
        staying = [worker for phase in _FIRST_TO_GO for worker in reversed(self._phases[phase])]
        return staying[: max(len(staying) - self.wanted, 0)]

    def _drop(self, worker: WorkerPod, now: float) -> None:
        if worker.node is None:
            self._around.withdraw(worker)
        else:
            self._around.release(worker)
        self._move(worker, WorkerPhase.GONE, now)
        self._live.pop(worker.index, None)

    def _started(self, worker: WorkerPod, now: float) -> None:
        if worker.phase is WorkerPhase.STARTING:
            self._move(worker, self._phase_when_ready(worker), now)

    def _left(self, worker: WorkerPod, now: float) -> None:
        if worker.phase is WorkerPhase.LEAVING:
            self._around.release(worker)
            self._move(worker, WorkerPhase.GONE, now)
            self._replace(worker, now)

    def _replace(self, worker: WorkerPod, now: float) -> None:
        """The operator makes a pod of the same name once the old one is gone."""
        if self._live.get(worker.index) is worker:
            del self._live[worker.index]
            if len(self._live) < self.wanted:
                self._ask(worker.index, now)

    def _move(self, worker: WorkerPod, phase: WorkerPhase, now: float) -> None:
        self._progress.advance(now)
        del self._phases[worker.phase][worker]
        worker.phase = phase
        if phase is not WorkerPhase.GONE:
            self._phases[phase][worker] = None
        self._progress.starting = self.count(WorkerPhase.STARTING)
        self._progress.ready = self.count(WorkerPhase.READY)
        self._progress.members = self.count(WorkerPhase.MEMBER)
        self._progress.slowest = self._slowest()
        self._progress.others = self.count(WorkerPhase.UNUSED) + self.count(WorkerPhase.LEAVING)
        self._changed()

    def _slowest(self) -> float:
        if not self._knows_slow:
            return 1.0
        return max((worker.slow for worker in self._phases[WorkerPhase.MEMBER]), default=1.0)
