"""The live view of all jobs, as a table."""

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hvd_elastic.client.report.job_list import ListedJob, total
from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.client.report.words.time_words import duration_words
from hvd_elastic.client.watch.screen_state import ScreenState
from hvd_elastic.client.watch.screen_text import line, visible, wrapped
from hvd_elastic.system.plain_words import count_words

KEYS: Final = "up/down choose  enter open  s sort  / filter  q quit"
_SORTS: Final = ("name", "state", "size", "gpu_seconds", "preemptions")
_STYLES: Final = {
    JobState.TRAINING: "green",
    JobState.SUCCEEDED: "dim",
    JobState.FAILED: "red",
    JobState.EXHAUSTED: "red",
    JobState.STALLED: "red",
}


def list_screen(jobs: Sequence[ListedJob], state: ScreenState, *, width: int, height: int) -> Group:
    """At most `height` lines of at most `width` characters."""
    rows, sums = job_rows(jobs, state), total(jobs)
    room = max(1, height - 4)  # titles, two lines of sums, keys
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), width=width, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("JOB", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("STATE", no_wrap=True)
    for title in ("SIZE", "STEP", "TRAINED", "GPU-HOURS", "TAKEN"):
        table.add_column(title, justify="right", no_wrap=True)
    for number in visible([1] * len(rows), state.row, room):
        table.add_row(">" if number == state.row else " ", *_cells(rows[number]))
    trains = f"{sums.training} in training with {count_words(sums.workers, 'worker')}"
    summary = (
        f"{count_words(sums.jobs, 'job')}, {trains}; {sums.gpu_seconds / 3600:.1f} GPU-hours held, "
        f"{sums.lent_gpu_seconds / 3600:.1f} lent, {count_words(sums.preemptions, 'preemption')}"
    )
    footer = f"filter: {state.words}_  (enter keeps, esc clears)" if state.is_typing else KEYS
    return Group(
        table,
        *map(line, wrapped(summary, width)),
        line(footer, "reverse", overflow="ellipsis"),
    )


def job_rows(jobs: Sequence[ListedJob], state: ScreenState) -> list[ListedJob]:
    """The jobs that are shown, in the chosen order: names upwards, numbers downwards."""
    words, key = state.words.lower(), _SORTS[state.sort % len(_SORTS)]
    shown = [job for job in jobs if words in f"{job.namespace}/{job.name} {job.state}".lower()]
    if key in {"name", "state"}:
        return sorted(shown, key=lambda job: (str(getattr(job, key)), job.namespace, job.name))
    return sorted(shown, key=lambda job: -(getattr(job, key) or 0.0))


def _cells(job: ListedJob) -> tuple[Any, ...]:
    return (
        line(f"{job.namespace}/{job.name}", overflow="ellipsis"),
        Text(job.state, style=_STYLES.get(job.state, "")),
        f"{job.size} of [{job.min_workers}..{job.max_workers}]",
        str(job.step) if job.step >= 0 else "-",
        "-" if job.training_seconds is None else duration_words(job.training_seconds),
        "-" if job.gpu_seconds is None else f"{job.gpu_seconds / 3600:.1f}",
        "-" if job.preemptions is None else str(job.preemptions),
    )
