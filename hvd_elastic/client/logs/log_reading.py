"""What is read next of a job's log: decisions over what was read so far and the launchers that there are now."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.client.logs.launcher_runs import JobLaunchers, LauncherRun
from hvd_elastic.client.logs.log_line import ALL_LINES, LogSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """What somebody wants to read."""

    follow: bool = False
    """Whether to wait for more lines, and for more launchers, until the job has ended."""
    selection: LogSelection = ALL_LINES
    since_seconds: int | None = None
    """Only lines that are no older. With it, all launchers are read, else only the last one."""
    tail: int | None = None
    """Only so many of the last lines that are selected."""
    previous: bool = False
    """Whether to read the launcher before the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A launcher's log, as far as it was read."""

    run: LauncherRun
    """As it was when the last request for it began."""
    past: frozenset[tuple[str, int]]
    """The keys of this run and of all that came before it."""
    is_complete: bool = False
    """Whether all that the run has printed was read."""


class NextStep(StrEnum):
    """What the reader of a log does."""

    READ = "read"
    WAIT = "wait"
    END = "end"


def first_runs(launchers: JobLaunchers, request: LogRequest) -> Sequence[LauncherRun]:
    """The runs that are read at the start, the oldest first; empty if there is none."""
    readable = launchers.readable
    if request.previous:
        return readable[-2:-1]
    return readable if request.since_seconds is not None else readable[-1:]


def next_reading(done: Reading | None, launchers: JobLaunchers) -> tuple[NextStep, Reading | None]:
    """What follows a request that has ended, by itself or because it was cut. The reading is of READ."""
    if done and not done.is_complete and (run := launchers.find(done.run.key)):
        return NextStep.READ, Reading(run=run, past=done.past)
    later = [run for run in launchers.readable if done is None or run.key not in done.past]
    if later:
        return NextStep.READ, Reading(run=later[0], past=launchers.upto(later[0]))
    return (NextStep.END if launchers.ended else NextStep.WAIT), None
