"""The MPI Operator's discovery script with plain `horovodrun`.

What it does is read from Horovod 0.28.1 (`runner/elastic/driver.py`, `registration.py`) and was seen on a real cluster:
a host whose worker ends while it is assigned is blacklisted for good, and the pod that replaces it has the same name.
"""

from typing import Final

from hvd_elastic.decide.simulate.engine.job_run import JobRun, RunPhase
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase, WorkerPod
from hvd_elastic.decide.simulate.ways.resizing import change_world
from hvd_elastic.decide.simulate.workload import SimulatedJob

_ELASTIC_TIMEOUT_SECONDS: Final = 600.0
"""`--elastic-timeout`: for so long the driver waits for the processes that it needs. Then it ends with an error."""
_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 300.0
"""The kubelet's, between two starts of a container. The Job's `backoffLimit` (6) is left out, in favour of stock."""
_BACKOFF_FORGOTTEN_SECONDS: Final = 600.0
"""A container that ran so long starts again after the shortest backoff."""


class StockWay:
    """It shrinks, and grows only by hosts that it has never used."""

    def __init__(self) -> None:
        self._blacklist: set[int] = set()
        self._failures = 0
        self._launched = 0.0

    def workers(self, job: SimulatedJob) -> int:
        """As many as there may be."""
        return job.max

    def wait(self, run: JobRun, now: float) -> None:
        """For `-np` workers, for a time."""
        self._launched = now
        run.turn_to(RunPhase.WAITING, now, _ELASTIC_TIMEOUT_SECONDS, lambda second: self._fail(run, second))

    def respond(self, run: JobRun, now: float) -> None:
        """Shrink as long as `min` are left."""
        self._blacklist |= run.workers.departures.keys()
        if run.phase in (RunPhase.WAITING, RunPhase.FORMING):
            self._begin(run, now)
        elif run.phase is RunPhase.BACKOFF:
            return
        elif not run.workers.count(WorkerPhase.MEMBER):
            self._fail(run, now)
        elif run.workers.usable >= run.job.min:
            change_world(run, now)
        elif run.phase is not RunPhase.SHORT:
            run.turn_to(RunPhase.SHORT, now, _ELASTIC_TIMEOUT_SECONDS, lambda second: self._fail(run, second))

    def phase_when_ready(self, run: JobRun, worker: WorkerPod) -> WorkerPhase:
        """A replacement holds its GPUs and is never asked."""
        return WorkerPhase.UNUSED if worker.index in self._blacklist else WorkerPhase.READY

    def on_checkpoint(self, run: JobRun, now: float) -> None:
        """Nothing changes."""

    def _begin(self, run: JobRun, now: float) -> None:
        enough = run.workers.count(WorkerPhase.READY) >= run.job.start
        if enough and run.phase is RunPhase.WAITING:
            run.form(now)
        elif not enough and run.phase is RunPhase.FORMING:
            self.wait(run, now)

    def _fail(self, run: JobRun, now: float) -> None:
        """The launcher has ended. The next one knows no blacklist, and no state but the durable one."""
        run.progress.roll_back()
        run.disband(now)
        run.workers.move_all(WorkerPhase.UNUSED, WorkerPhase.READY, now)
        self._blacklist.clear()
        self._failures = 0 if now - self._launched >= _BACKOFF_FORGOTTEN_SECONDS else self._failures + 1
        delay = min(_BACKOFF_SECONDS * 2**self._failures, _LONGEST_BACKOFF_SECONDS)
        run.turn_to(RunPhase.BACKOFF, now, delay, lambda second: self.wait(run, second))
