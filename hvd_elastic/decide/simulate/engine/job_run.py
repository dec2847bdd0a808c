"""One job in the simulated day: its world, and what it has trained. A `Response` decides; this carries out."""

from enum import Enum, auto
from functools import partial
from typing import Protocol

from hvd_elastic.decide.simulate.engine.event_queue import TimedAction
from hvd_elastic.decide.simulate.engine.job_progress import GpuUse, JobProgress
from hvd_elastic.decide.simulate.engine.job_workers import JobSurroundings, JobWorkers
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase, WorkerPod
from hvd_elastic.decide.simulate.outcome import SizeHistory
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls


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


class RunSurroundings(JobSurroundings, Protocol):
    """What a run needs besides."""

    def touch(self, run: "JobRun") -> None:
        """It has to respond once all that happens in this moment has happened."""

    def cancel(self, number: int) -> None:
        """What `at` has set is not to happen. Nothing if it has happened."""


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


_USES = {RunPhase.FORMING: GpuUse.BEGINNING, RunPhase.TRAINING: GpuUse.TRAINING}


class JobRun:
    """One job, from its submission to its end."""

    def __init__(
        self, number: int, job: SimulatedJob, response: Response, stalls: Stalls, around: RunSurroundings
    ) -> None:
        self.job = job
        self.stalls = stalls
        self.phase = RunPhase.WAITING
        self.progress = JobProgress(job=job)
        self.workers = JobWorkers(
            number,
            self.progress,
            stalls,
            around,
            phase_when_ready=partial(response.phase_when_ready, self),
            changed=partial(around.touch, self),
        )
        self.handover = 0.0
        """Seconds that those which leave take longer, because a checkpoint is written before."""
        self.submitted = False
        self.first_step: float | None = None
        self.last_resize: float | None = None
        self.completed: float | None = None
        self.resizes = 0
        self.restarts = 0
        self.sizes = SizeHistory()
        self._response = response
        self._around = around
        self._timer: int | None = None
        self._until = 0.0
        self._checkpoint_due = False

    @property
    def has_work(self) -> bool:
        return self.submitted and self.phase is not RunPhase.ENDED

    def submit(self, now: float) -> None:
        self.submitted = True
        self.progress.now = now
        self.workers.want(self._response.workers(self.job), now)
        self._response.wait(self, now)

    def respond(self, now: float) -> None:
        """Let the way decide, then let those leave that were told to."""
        if self.phase is RunPhase.ENDED:
            return
        self.progress.advance(now)
        self._response.respond(self, now)
        self.workers.dismiss(self.handover, now)
        self.handover = 0.0

    def slow_down(self, worker: WorkerPod, times: float, now: float) -> None:
        """A worker takes so many times as long from now on."""
        self.workers.slow_down(worker, times, now)
        if self.phase is RunPhase.TRAINING and worker.phase is WorkerPhase.MEMBER:
            self.train(now)  # its end comes later

    # What its way decides

    def turn_to(
        self, phase: RunPhase, now: float, seconds: float = float("inf"), then: TimedAction | None = None
    ) -> None:
        """Be in a phase, and do something if it is still in it after some seconds."""
        self.progress.advance(now)
        self.phase = phase
        self.progress.turn_to(_USES.get(phase, GpuUse.STILL))
        self._note_size(now)
        if self._timer is not None:
            self._around.cancel(self._timer)
        self._until = now + seconds
        self._around.touch(self)
        self._timer = None if then is None else self._around.at(self._until, partial(self._in_time, then))

    def form(self, now: float) -> None:
        """Begin, or begin again, with those that are READY when it is time."""
        again = self.first_step is not None
        self.turn_to(RunPhase.FORMING, now, self.stalls.restart if again else self.stalls.first_step, self._formed)

    def resize(self, now: float, seconds: float) -> None:
        """Stand still as the world changes. All that are READY join, as far as sizes allow.

        What comes meanwhile changes the same world.
        """
        pending = self._until - now if self.phase is RunPhase.RESIZING else 0.0
        self.workers.form(now)
        self.resizes += 1
        self.last_resize = now
        self.turn_to(RunPhase.RESIZING, now, max(seconds, pending), self.train)

    def disband(self, now: float) -> None:
        """There is no world any more. Its members are still there."""
        self.workers.move_all(WorkerPhase.MEMBER, WorkerPhase.READY, now)

    def train(self, now: float) -> None:
        self.turn_to(RunPhase.TRAINING, now)
        self.turn_to(RunPhase.TRAINING, now, self.progress.seconds_left(), self._complete)
        if self._checkpoint_due:
            self._save(now)

    def end(self, now: float) -> None:
        """All its workers go at once."""
        self.turn_to(RunPhase.ENDED, now)
        self.workers.end(now)

    # What comes with time

    def _in_time(self, action: TimedAction, now: float) -> None:
        self.progress.advance(now)
        action(now)

    def _formed(self, now: float) -> None:
        if self.first_step is None:
            self.first_step = now
            self._next_checkpoint(now)
        else:
            self.restarts += 1
        self.workers.form(now)
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
        size = self.workers.count(WorkerPhase.MEMBER) if self.phase is RunPhase.TRAINING else 0
        if self.phase is not RunPhase.RESIZING:
            self.sizes.note(now, size)
