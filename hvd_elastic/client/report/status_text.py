"""A job's status as a person reads it: a sentence, what it costs, and the workers that do not train."""

from collections.abc import Iterator

from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.client.report.job_status import JobStatus
from hvd_elastic.client.report.stage_status import stage_line
from hvd_elastic.client.report.words.time_words import clock_words, duration_words
from hvd_elastic.client.report.worker_status import WorkerPodState, WorkerStatus
from hvd_elastic.discovery.ledger.history.slow_rank_history import slow_words
from hvd_elastic.mpijob.contract import ALERT_CHECKPOINT_LATE
from hvd_elastic.system.plain_words import count_words, printable


def status_text(status: JobStatus, *, wide: bool = False) -> str:
    """Some lines. With `wide` all workers, and not only those of which there is something to say."""
    lines = [headline(status), *fact_lines(status), *(f"  note: {note}" for note in status.notes)]
    # What is left of an ended job's workers is being stopped: it starts no more.
    told = [worker for worker in status.workers if wide or (not status.state.is_final and _is_worth_telling(worker))]
    return "".join(
        f"{printable(line)}\n" for line in (*lines, *(f"  {_worker_line(worker, status.now)}" for worker in told))
    )


def headline(status: JobStatus) -> str:
    """`team/train: training with 3 of [1..8] workers since 12:03:10`."""
    bounds = f"[{status.min_workers}..{status.max_workers}]"
    since = f" since {clock_words(status.since, status.now)}" if status.since else ""
    why = f": {status.why}" if status.why else ""
    doing = str(status.state)
    if status.state is JobState.TRAINING:
        doing = f"training with {status.size} of {bounds} workers"
    elif not status.state.is_final:
        there = sum(worker.state in {WorkerPodState.READY, WorkerPodState.TRAINING} for worker in status.workers)
        doing = f"{status.state}, {there} of {bounds} workers are ready"
    return f"{status.namespace}/{status.name}: {doing}{since}{why}"


def fact_lines(status: JobStatus) -> Iterator[str]:
    """The figures, a line each."""
    if status.stage is not None:
        yield f"  {stage_line(status.stage)}"
    if status.step >= 0:
        yield f"  step {status.step}{_pace(status)}"
    yield from (f"  {slow_words(each, since=clock_words(each.unix, status.now))}" for each in status.slow)
    if status.floor and not status.state.is_final:
        kept = sum(worker.kept for worker in status.workers)
        of = count_words(status.floor, "worker")
        yield f"  floor: {kept} of {of} {'is' if kept == 1 else 'are'} kept from inference"
    if durable := "; ".join(_durable(status)):
        yield f"  durable checkpoint: {durable}"
    if status.samples:
        yield f"  samples: {status.samples}"
    if happened := "; ".join(_happened(status)):
        yield f"  {happened}"
    if status.autoscaler is not None:
        yield f"  autoscaler: {status.autoscaler.words(status.now)}"
    left = status.restarts - status.restarts_used
    yield f"  restarts: {status.restarts_used} used, {left} left (launchers that were taken away do not count)"
    if status.last_failure and status.last_failure not in status.why:
        yield f"  the last launcher that failed ended with {status.last_failure}"


def _durable(status: JobStatus) -> Iterator[str]:
    if status.durable_age_seconds is not None:
        yield f"step {status.durable_step}, {duration_words(status.durable_age_seconds)} ago"
    if status.save_error:
        yield f"saves fail: {status.save_error} (where it lasts, the alert {ALERT_CHECKPOINT_LATE} fires)"
    if status.rejected:
        yield f"a newer one was not used: {status.rejected}"


def _happened(status: JobStatus) -> Iterator[str]:
    """What has happened, and nothing of what has not."""
    if status.resizes:
        yield (
            f"{count_words(status.resizes, 'resize')} cost {duration_words(status.pause_seconds)} and "
            f"{count_words(status.repeated_steps, 'repeated step')}"
        )
    if status.preemptions:
        yield count_words(status.preemptions, "preemption")


def _pace(status: JobStatus) -> str:
    parts = []
    if status.steps_per_second is not None:
        parts.append(f"{status.steps_per_second:.3g} steps/s")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4g}")
    if status.heartbeat_age_seconds is not None and status.word_age_seconds is not None:
        age, word = duration_words(status.heartbeat_age_seconds), duration_words(status.word_age_seconds)
        parts.append(f"heartbeat {age} old, as of {word} ago")
    elif status.figures_age_seconds is not None:
        parts.append(f"as of {duration_words(status.figures_age_seconds)} ago")
    return "".join(f", {part}" for part in parts)


def _is_worth_telling(worker: WorkerStatus) -> bool:
    return worker.state is not WorkerPodState.TRAINING or bool(worker.before)


def _worker_line(worker: WorkerStatus, now: float) -> str:
    node = f" on {worker.node}" if worker.node else ""
    since = f" since {clock_words(worker.since, now)}" if worker.since else ""
    why = f": {worker.why}" if worker.why else ""
    before = f"; the one before was {worker.before}" if worker.before else ""
    return f"{worker.pod} {worker.state}{node}{since}{why}{before}"
