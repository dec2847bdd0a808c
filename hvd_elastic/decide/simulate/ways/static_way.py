"""A job of a fixed size."""

from hvd_elastic.decide.simulate.engine.job_run import JobRun, RunPhase
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase, WorkerPod
from hvd_elastic.decide.simulate.workload import SimulatedJob


class StaticWay:
    """All workers or none: the others keep their GPUs and wait for the one that is lost."""

    def workers(self, job: SimulatedJob) -> int:
        return job.start

    def wait(self, run: JobRun, now: float) -> None:
        """For all of them."""
        run.turn_to(RunPhase.WAITING, now)

    def respond(self, run: JobRun, now: float) -> None:
        """Every loss ends the run; the next one begins at the checkpoint."""
        if run.workers.departures:
            run.progress.roll_back()
            run.disband(now)
            self.wait(run, now)
        complete = run.workers.count(WorkerPhase.READY) >= run.job.start
        if complete and run.phase is RunPhase.WAITING:
            run.form(now)
        elif not complete and run.phase is RunPhase.FORMING:
            self.wait(run, now)

    def phase_when_ready(self, run: JobRun, worker: WorkerPod) -> WorkerPhase:
        """Always of use."""
        return WorkerPhase.READY

    def on_checkpoint(self, run: JobRun, now: float) -> None:
        """Nothing changes."""
