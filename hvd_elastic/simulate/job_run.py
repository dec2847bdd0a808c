"""One job in the simulated day: its workers, its world, what it has trained. A `Response` decides; this carries out."""

from enum import Enum, auto
from functools import partial
from typing import Protocol

from hvd_elastic.simulate.event_queue import Action
from hvd_elastic.simulate.job_progress import Activity, JobProgress
from hvd_elastic.simulate.outcome import SizeChange
from hvd_elastic.simulate.scheduled_pod import ScheduledPod, WorkerPhase, WorkerPod
from hvd_elastic.simulate.workload import SimulatedJob, Stalls


class RunPhase(Enum):
    """Where a job is."""

    WAITING = auto()
    """It has no world, and too few workers for one."""
    FORMING = auto()
    """Its first world, or a restarted one, is about to train."""
    TRAINING = auto()
    RESIZING = auto()
    SHORT = auto()
    """Too few are left to train, and they hold the state."""
    BACKOFF = auto()
    """Its launcher has failed, and is not started again yet."""
    ENDED = auto()


class Departure(Enum):
    """How a member left."""

    TOLD = auto()
    KILLED = auto()
    """Without a word, its node is there."""
    NODE_LOST = auto()


class Surroundings(Protocol):
    """What a job asks of the cluster."""

    def create(self, pod: ScheduledPod) -> None:
        """It waits for room from now on."""

    def release(self, pod: ScheduledPod) -> None:
        """Its GPUs are free."""

    def at(self, second: float, action: Action) -> None:
        """Do something later."""

    def touch(self, run: "JobRun") -> None:
        """It has to respond once all that happens in this moment has happened."""


class Response(Protocol):
    """A way to meet changes."""

    def workers(self, job: SimulatedJob) -> int:
        """How many are asked for."""

    def wait(self, run: "JobRun", now: float) -> None:
        """It has no world, and waits for workers."""

    def respond(self, run: "JobRun", now: float) -> None:
        """To what has happened since the last time: `departures`, and workers that are READY."""

    def phase_when_ready(self, run: "JobRun", worker: WorkerPod) -> WorkerPhase:
        """READY, or UNUSED."""

    def on_checkpoint(self, run: "JobRun", now: float) -> None:
        """A durable checkpoint was written."""


_ACTIVITIES = {RunPhase.FORMING: Activity.BEGINNING, RunPhase.TRAINING: Activity.TRAINING}
_BOUND = (WorkerPhase.STARTING, WorkerPhase.READY, WorkerPhase.MEMBER, WorkerPhase.UNUSED)


class JobRun:
    """One job, from its submission to its end."""

    def __init__(
        self, number: int, job: SimulatedJob, response: Response, stalls: Stalls, around: Surroundings
    ) -> None:
        self.number = number
        self.job = job
        self.stalls = stalls
        self.phase = RunPhase.WAITING
        self.progress = JobProgress(job=job)
        self.departures: dict[int, Departure] = {}
        """Of members since the last response, by their index."""
        self.noticed: list[WorkerPod] = []
        """Told to leave since the last response."""
        self.handover = 0.0
        """Seconds that they take longer, because a checkpoint is written before."""
        self.wanted = 0
        self.submitted = False
        self.first_step: float | None = None
        self.last_resize: float | None = None
        self.completed: float | None = None
        self.resizes = 0
        self.restarts = 0
        self.sizes: list[SizeChange] = []
        self._response = response
        self._around = around
        self._phases: dict[WorkerPhase, dict[WorkerPod, None]] = {phase: {} for phase in WorkerPhase}
        self._live: dict[int, WorkerPod] = {}
        self._timer = 0
        self._until = 0.0
        self._checkpoint_due = False

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

    # What happens to it

    def submit(self, now: float) -> None:
        """It begins."""
        self.submitted = True
        self.progress.now = now
        self.want(self._response.workers(self.job), now)
        self._response.wait(self, now)

    def want(self, workers: int, now: float) -> None:
        """Have so many workers: new ones are asked for, or some are told to leave."""
        self.wanted = min(workers, self.job.max)
        for index in range(self.job.max):
            if len(self._live) >= self.wanted:
                break
            self._ask(index, now)
        for worker in self._surplus():
            self._dismiss(worker, now)

    def bound(self, worker: WorkerPod, now: float) -> None:
        """A worker has got its GPUs."""
        self._move(worker, WorkerPhase.STARTING, now)
        self._around.at(now + self.stalls.pod_start, partial(self._started, worker))

    def tell(self, worker: WorkerPod, now: float, *, grace: float | None = None) -> None:
        """The worker has to leave, within its grace."""
        if worker.phase not in _BOUND:
            return
        if worker.phase is WorkerPhase.MEMBER:
            self.departures[worker.index] = Departure.TOLD
        worker.leaving = True
        worker.grace = self.job.grace_seconds if grace is None else min(grace, self.job.grace_seconds)
        self.noticed.append(worker)
        self._move(worker, WorkerPhase.LEAVING, now)

    def lose(self, worker: WorkerPod, how: Departure, now: float) -> None:
        """The worker's node is gone."""
        if worker.phase is WorkerPhase.MEMBER:
            self.departures[worker.index] = how
        replaced = now if how is Departure.KILLED else now + self.stalls.node_replaced
        self._move(worker, WorkerPhase.GONE, now)
        self._around.at(replaced, partial(self._replace, worker))

    def respond(self, now: float) -> None:
        """Let the way decide, then let those leave that were told to."""
        if self.phase is RunPhase.ENDED:
            return
        self.progress.advance(now)
        self._response.respond(self, now)
        self.departures.clear()
        for worker in self.noticed:
            seconds = min(self.stalls.gpu_free + self.handover, worker.grace)
            self._around.at(now + seconds, partial(self._left, worker))
        self.noticed.clear()
        self.handover = 0.0

    # What its way decides

    def turn_to(self, phase: RunPhase, now: float, seconds: float = float("inf"), then: Action | None = None) -> None:
        """Be in a phase, and do something if it is still in it after some seconds."""
        self.progress.advance(now)
        self.phase = phase
        self.progress.turn_to(_ACTIVITIES.get(phase, Activity.STILL))
        self._note_size(now)
        self._timer += 1
        self._until = now + seconds
        self._around.touch(self)
        if then is not None:
            self._around.at(now + seconds, partial(self._in_time, self._timer, then))

    def form(self, now: float) -> None:
        """Begin, or begin again, with those that are READY when it is time."""
        again = self.first_step is not None
        self.turn_to(RunPhase.FORMING, now, self.stalls.restart if again else self.stalls.first_step, self._formed)

    def resize(self, now: float, seconds: float) -> None:
        """Stand still as the world changes. All that are READY join. What comes meanwhile changes the same world."""
        pending = self._until - now if self.phase is RunPhase.RESIZING else 0.0
        self.admit(now)
        self.resizes += 1
        self.last_resize = now
        self.turn_to(RunPhase.RESIZING, now, max(seconds, pending), self.train)

    def admit(self, now: float) -> None:
        """Make members of all that are READY."""
        for worker in self.of(WorkerPhase.READY):
            self._move(worker, WorkerPhase.MEMBER, now)

    def disband(self, now: float, *, to: WorkerPhase = WorkerPhase.READY) -> None:
        """There is no world any more. Its members are still there."""
        for worker in self.of(WorkerPhase.MEMBER):
            self._move(worker, to, now)

    def revive(self, now: float) -> None:
        """Those that were never asked any more may be asked again."""
        for worker in self.of(WorkerPhase.UNUSED):
            self._move(worker, WorkerPhase.READY, now)

    def train(self, now: float) -> None:
        """Go on."""
        self.turn_to(RunPhase.TRAINING, now)
        self.turn_to(RunPhase.TRAINING, now, self.progress.seconds_left(), self._complete)
        if self._checkpoint_due:
            self._save(now)

    def end(self, now: float) -> None:
        """All its workers go at once."""
        self.turn_to(RunPhase.ENDED, now)
        for phase in WorkerPhase:
            for worker in self.of(phase):
                self._drop(worker, now)

    # How its workers come and go

    def _ask(self, index: int, now: float) -> None:
        if index in self._live or self.phase is RunPhase.ENDED:
            return
        worker = WorkerPod(gpus=self.job.gpus, created=now, job=self.number, index=index)
        self._live[index] = worker
        self._phases[WorkerPhase.PENDING][worker] = None
        self._around.create(worker)

    def _surplus(self) -> list[WorkerPod]:
        """Those that wait go first, then the last that came."""
        order = (WorkerPhase.PENDING, WorkerPhase.STARTING, WorkerPhase.UNUSED, WorkerPhase.READY, WorkerPhase.MEMBER)
        staying = [worker for phase in order for worker in reversed(self._phases[phase])]
        return staying[: max(len(staying) - self.wanted, 0)]

    def _dismiss(self, worker: WorkerPod, now: float) -> None:
        if worker.phase is WorkerPhase.PENDING:
            self._drop(worker, now)
        else:
            self.tell(worker, now)

    def _drop(self, worker: WorkerPod, now: float) -> None:
        if worker.node is not None:
            self._around.release(worker)
        self._move(worker, WorkerPhase.GONE, now)
        self._live.pop(worker.index, None)

    def _started(self, worker: WorkerPod, now: float) -> None:
        if worker.phase is WorkerPhase.STARTING:
            self._move(worker, self._response.phase_when_ready(self, worker), now)

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
        self.progress.advance(now)
        del self._phases[worker.phase][worker]
        worker.phase = phase
        if phase is not WorkerPhase.GONE:
            self._phases[phase][worker] = None
        self.progress.starting = self.count(WorkerPhase.STARTING)
        self.progress.ready = self.count(WorkerPhase.READY)
        self.progress.members = self.count(WorkerPhase.MEMBER)
        self.progress.others = self.count(WorkerPhase.UNUSED) + self.count(WorkerPhase.LEAVING)
        self._around.touch(self)

    # What comes with time

    def _in_time(self, timer: int, action: Action, now: float) -> None:
        if timer == self._timer:
            self.progress.advance(now)
            action(now)

    def _formed(self, now: float) -> None:
        if self.first_step is None:
            self.first_step = now
            self._next_checkpoint(now)
        else:
            self.restarts += 1
        self.admit(now)
        self.train(now)

    def _complete(self, now: float) -> None:
        self.progress.samples = self.job.samples
        self.completed = now
        self.end(now)

    def _next_checkpoint(self, now: float) -> None:
        if self.job.checkpoint_every_seconds is not None:
            self._around.at(now + self.job.checkpoint_every_seconds, self._checkpoint)

    def _checkpoint(self, now: float) -> None:
        if self.phase is RunPhase.TRAINING:
            self.progress.advance(now)
            self._save(now)
        elif self.phase is not RunPhase.ENDED:
            self._checkpoint_due = True

    def _save(self, now: float) -> None:
        self._checkpoint_due = False
        self.progress.save()
        self._next_checkpoint(now)
        if self.job.checkpoint_seconds:
            self.turn_to(RunPhase.RESIZING, now, self.job.checkpoint_seconds, self.train)
        self._response.on_checkpoint(self, now)

    def _note_size(self, now: float) -> None:
        size = self.count(WorkerPhase.MEMBER) if self.phase is RunPhase.TRAINING else 0
        changed = not self.sizes or self.sizes[-1].workers != size
        if changed and self.phase is not RunPhase.RESIZING:
            self.sizes.append(SizeChange(second=now, workers=size))
