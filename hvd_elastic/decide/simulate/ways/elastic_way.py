"""hvd-elastic: workers leave by a drain and join when they are warm; the state is in the memory of every worker."""

from typing import Final

from hvd_elastic.decide.simulate.engine.job_run import JobRun, RunPhase
from hvd_elastic.decide.simulate.engine.job_workers import MemberLoss
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase, WorkerPod
from hvd_elastic.decide.simulate.ways.resizing import change_world, form_when_enough
from hvd_elastic.decide.simulate.workload import SimulatedJob

_GRACE_FOR_CHECKPOINT: Final = 0.8
"""The part of its grace that training may wait for the store (docs/checkpoints.md)."""
_LAST_LOOK_SECONDS: Final = 1.0
"""A process whose job has no place left waits so long for one before it saves and leaves (docs/checkpoints.md)."""


class ElasticWay:
    """As docs/launcher.md and docs/checkpoints.md say."""

    def workers(self, job: SimulatedJob) -> int:
        """As many as there may be: those without room wait."""
        return job.max

    def wait(self, run: JobRun, now: float) -> None:
        """The launcher waits as long as it takes."""
        run.turn_to(RunPhase.WAITING, now)

    def respond(self, run: JobRun, now: float) -> None:
        """A first launcher waits for `start` workers, each later world for `min`."""
        if run.phase in (RunPhase.WAITING, RunPhase.FORMING):
            first = min(run.job.start, max(run.workers.wanted, run.job.min))
            form_when_enough(run, run.job.min if run.first_step is not None else first, now)
        elif run.workers.usable >= run.job.min and self._state_is_held(run):
            change_world(run, now)
        elif run.workers.count(WorkerPhase.MEMBER):
            self._stand_still(run, now)
        else:
            self._lose_world(run, now)

    def phase_when_ready(self, run: JobRun, worker: WorkerPod) -> WorkerPhase:
        """Ready means warm: it may be asked."""
        return WorkerPhase.READY

    def on_checkpoint(self, run: JobRun, now: float) -> None:
        """Nothing changes."""

    def _state_is_held(self, run: JobRun) -> bool:
        """By a member that is left, or by one that stays for a world more to hand it over."""
        handed_over = MemberLoss.TOLD in run.workers.departures.values() and run.workers.count(WorkerPhase.READY) > 0
        return run.workers.count(WorkerPhase.MEMBER) > 0 or handed_over

    def _stand_still(self, run: JobRun, now: float) -> None:
        if run.workers.departures and self._saves(run):
            run.handover = run.job.checkpoint_seconds
        if run.phase is not RunPhase.SHORT:
            run.turn_to(RunPhase.SHORT, now)

    def _lose_world(self, run: JobRun, now: float) -> None:
        if self._saves(run):
            run.handover = _LAST_LOOK_SECONDS + run.job.checkpoint_seconds
        else:
            run.progress.roll_back()
        self.wait(run, now)

    def _saves(self, run: JobRun) -> bool:
        """Whether the last commit is durable before those that hold it have left."""
        if run.job.checkpoint_every_seconds is None or MemberLoss.TOLD not in run.workers.departures.values():
            return False
        grace = min((worker.grace for worker in run.workers.noticed), default=0.0)
        saves = run.job.checkpoint_seconds <= _GRACE_FOR_CHECKPOINT * grace
        if saves:
            run.progress.save()
        return saves
