"""Has a job train at some sizes in turn, for some steps each, and then at the one that it had."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.operations.first_step import JobFailedError
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.scaling import POLL_SECONDS, scale, scaling_of, wait_for_size
from hvd_elastic.client.operations.submitted_job import JobStateError, SubmittedJob, find_submitted
from hvd_elastic.client.report.job_facts import JobFactReader
from hvd_elastic.discovery.ledger.entries import WorldChanged
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS
from hvd_elastic.system.plain_words import count_words

STEPS: Final = 50
"""At each size, unless the caller says another number."""

LEDGER_LOOKS: Final = 30
"""At most, POLL_SECONDS apart, until the ledger has what the status tells."""

Report = Callable[[object], None]
Sleep = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """How far a job has come at a size."""

    workers: int
    done: int
    wanted: int

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.done} of {self.wanted} steps with {count_words(self.workers, 'worker')}"


def visit_sizes(
    cluster: ClusterClient, name: str, sizes: Sequence[int], *, steps: int = STEPS, report: Report, sleep: Sleep
) -> None:
    """Scale a job to each of the sizes, and back, also if this is interrupted. The ledger keeps what comes of it.

    Nothing is changed if a size is outside the job's bounds. At the end it waits for the former size to be in the
    ledger, which has the last visit then.

    Raises JobStateError if a size is outside, or the job is suspended or has ended; JobFailedError if it ends
    meanwhile; UnknownJobError; ForeignJobError; other ClusterErrors.
    """
    before = _checked(find_submitted(cluster, name), sizes)
    wait = LongWait(sleep=sleep)
    try:
        for size in sizes:
            wait.look(partial(scale, cluster, name, size))
            wait_for_size(cluster, name, size, report=report, sleep=sleep)
            _wait_for_steps(cluster, name, size, steps, report=report, sleep=sleep)
    finally:
        with suppress(JobStateError):  # it has ended
            wait.look(lambda: scale(cluster, name, before))
    wait_for_size(cluster, name, before, report=report, sleep=sleep)
    _wait_for_ledger(cluster, name, before, sleep=sleep)


def _checked(job: SubmittedJob, sizes: Sequence[int]) -> int:
    """The size before. Raises JobStateError."""
    if job.suspended:
        raise JobStateError(f"{job.name} is suspended: hvd-elastic resume {job.name}, and try again")
    asked = [scaling_of(job, size) for size in sizes]
    if any(one.restarts for one in asked):
        raise JobStateError(
            f"{job.name} is in the queue {job.queue}, and Kueue restarts it for each size: measure a copy that is in "
            "no queue, or leave --sizes out"
        )
    return asked[0].before


def _wait_for_steps(
    cluster: ClusterClient, name: str, workers: int, steps: int, *, report: Report, sleep: Sleep
) -> None:
    """Wait until a job that has this size has done so many steps, as its status says each half minute."""
    wait = LongWait(sleep=sleep)
    first: int | None = None
    told: StepProgress | None = None
    while told is None or told.done < steps:
        if told is not None:
            sleep(POLL_SECONDS)
        body = wait.look(lambda: cluster.get(mpijob_path(cluster.namespace, name)))
        if ended := SubmittedJob.from_json(body).ended:
            wanted = f"{count_words(steps, 'step')} with {count_words(workers, 'worker')}"
            raise JobFailedError(f"{name} has {ended} before it did {wanted}")
        status = LiveStatus.from_json((body["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS, ""))
        step = status.step if status and status.workers == workers else -1
        first = step if first is None and step >= 0 else first
        done = step - first if first is not None and step >= 0 else 0
        seen = StepProgress(workers=workers, done=max(0, done), wanted=steps)
        if seen != told:
            report(seen)
            told = seen


def _wait_for_ledger(cluster: ClusterClient, name: str, workers: int, *, sleep: Sleep) -> None:
    """Wait until the ledger has the world of so many workers. It is written up to some seconds after the status."""
    wait, reader = LongWait(sleep=sleep), JobFactReader(cluster)
    for _ in range(LEDGER_LOOKS):
        ledger = wait.look(lambda: reader.read(name, cluster.namespace)).ledger or ()
        worlds = [entry for entry in ledger if isinstance(entry, WorldChanged)]
        if not worlds or len(worlds[-1].workers) in {workers, 0}:  # 0: it has ended
            return
        sleep(POLL_SECONDS)
