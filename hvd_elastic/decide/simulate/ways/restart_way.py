"""Elastic by restart: any size, but each change begins the whole job again from its durable checkpoint."""

from hvd_elastic.decide.simulate.engine.job_run import JobRun, RunPhase
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase, WorkerPod
from hvd_elastic.decide.simulate.workload import SimulatedJob


class RestartWay:
    """A loss evicts the whole job. To grow it restarts in place, right after a checkpoint: no step is repeated."""

    def workers(self, job: SimulatedJob) -> int:
        """As many as there may be."""
        return job.max

    def wait(self, run: JobRun, now: float) -> None:
        """For `min`, and for those that are starting."""
        run.turn_to(RunPhase.WAITING, now)

    def respond(self, run: JobRun, now: float) -> None:
        """A world of all that have room."""
        if run.workers.departures:
            run.progress.roll_back()
            self._evict(run, now)
            self.wait(run, now)
        enough = run.workers.count(WorkerPhase.READY) >= run.job.min
        if enough and run.phase is RunPhase.WAITING and not run.workers.count(WorkerPhase.STARTING):
            run.form(now)
        elif not enough and run.phase is RunPhase.FORMING:
            self.wait(run, now)

    def phase_when_ready(self, run: JobRun, worker: WorkerPod) -> WorkerPhase:
        """Always of use."""
        return WorkerPhase.READY

    def on_checkpoint(self, run: JobRun, now: float) -> None:
        """Grow by those that have waited for it."""
        if run.workers.reachable_size > run.workers.count(WorkerPhase.MEMBER):
            run.disband(now)
            run.resizes += 1
            run.last_resize = now
            run.form(now)

    def _evict(self, run: JobRun, now: float) -> None:
        for phase in (WorkerPhase.STARTING, WorkerPhase.READY, WorkerPhase.MEMBER):
            for worker in run.workers.of(phase):
                run.workers.tell(worker, now)
