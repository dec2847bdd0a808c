"""What each entry of a ledger says, in plain words."""

from functools import singledispatch

from hvd_elastic.client.report.words.cause_words import departure_words
from hvd_elastic.client.report.words.time_words import duration_words
from hvd_elastic.discovery.ledger.entries import (
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    RankSlow,
    RankSlowEnded,
    RanksStalled,
    RecordLost,
    StallEnded,
    Totals,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)
from hvd_elastic.discovery.ledger.history.slow_rank_history import slow_words
from hvd_elastic.system.plain_words import count_words


@singledispatch
def entry_words(entry: Entry) -> str:
    """One sentence without its subject, which is the entry's pod, or the job."""
    raise TypeError(f"no words for {entry}")


@entry_words.register
def _(_entry: LauncherStarted) -> str:
    return "the launcher starts"


@entry_words.register
def _(entry: LauncherEnded) -> str:
    reason = _in_brackets(entry.reason)
    if entry.exit_code is None:
        return f"the launcher was taken away{reason}: no restart is counted"
    return f"the launcher ends with exit code {entry.exit_code}{reason}"


@entry_words.register
def _(entry: WorkerBound) -> str:
    kind = {None: "", True: "spot", False: "on-demand"}[entry.spot]
    machine = filter(None, (entry.machine, kind, count_words(entry.gpus, "GPU") if entry.gpus else ""))
    return f"has a place on {entry.node}{_in_brackets(', '.join(machine))}"


@entry_words.register
def _(entry: WorkerLeaving) -> str:
    return f"leaves: {departure_words(entry)}"


@entry_words.register
def _(_entry: WorkerGone) -> str:
    return "is gone"


@entry_words.register
def _(entry: WorldChanged) -> str:
    if not entry.workers:
        return "nobody trains"
    step = f" from step {entry.step}" if entry.step >= 0 else ""
    pause = f"; training stood still for {duration_words(entry.pause_seconds)}" if entry.pause_seconds else ""
    repeated = f"; {count_words(entry.repeated_steps, 'step')} done again" if entry.repeated_steps else ""
    return f"training with {count_words(len(entry.workers), 'worker')}{step}{pause}{repeated}"


@entry_words.register
def _(entry: WorkerProcessLost) -> str:
    return f"its training process is lost{_in_brackets(entry.detail)}; the pod stays"


@entry_words.register
def _(entry: RanksStalled) -> str:
    step = f" after step {entry.step}" if entry.step >= 0 else ""
    return f"stalled{step}: {entry.words}"


@entry_words.register
def _(entry: StallEnded) -> str:
    return f"goes on after {duration_words(entry.seconds)}"


@entry_words.register
def _(entry: RankSlow) -> str:
    return slow_words(entry)


@entry_words.register
def _(entry: RankSlowEnded) -> str:
    return f"rank {entry.rank} is as fast as the others again, after {duration_words(entry.seconds)}"


@entry_words.register
def _(entry: WantedChanged) -> str:
    return f"asked for: {count_words(entry.workers, 'worker')}"


@entry_words.register
def _(entry: JobEnded) -> str:
    code = "" if entry.exit_code is None else f" with exit code {entry.exit_code}"
    step = f" at step {entry.step}" if entry.step >= 0 else ""
    return f"has {'succeeded' if entry.succeeded else 'failed'}{code}{step}"


@entry_words.register
def _(_entry: RecordLost) -> str:
    return "what was recorded before is lost: all sums count from here on"


@entry_words.register
def _(entry: Totals) -> str:
    return f"summed up: {count_words(entry.entries, 'earlier event')}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""
