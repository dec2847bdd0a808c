"""The live view of one job, as text: the sentence, the figures, the chart, the workers, the story."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hvd_elastic.client.report.status_text import fact_lines, headline
from hvd_elastic.client.report.words.time_words import clock_words, duration_words
from hvd_elastic.client.report.worker_status import WorkerPodState, WorkerStatus
from hvd_elastic.client.watch.screen_state import SPANS, ScreenState
from hvd_elastic.client.watch.watched_job import WatchedJob
from hvd_elastic.client.watch.world_chart import Window, chart, first_change, legend

CHART_HEIGHT: Final = 5
STORY_LINES: Final = 6
KEYS: Final = "up/down choose  enter log  s sort  / filter  +/- zoom  esc back  q quit"
_SORTS: Final = ("pod", "state", "node", "since")
_STYLES: Final = {
    WorkerPodState.TRAINING: "green",
    WorkerPodState.READY: "cyan",
    WorkerPodState.STARTING: "cyan",
    WorkerPodState.PENDING: "yellow",
    WorkerPodState.LEAVING: "magenta",
    WorkerPodState.ENDED: "red",
    WorkerPodState.ABSENT: "yellow",
}


def job_screen(view: WatchedJob, state: ScreenState, *, width: int, height: int) -> Group:
    """At most `height` lines of at most `width` characters."""
    head = [*_head(view), *_chart(view, state, width)]
    told = view.story[-STORY_LINES:]
    room = max(1, height - len(head) - len(told) - 4)
    story = [f"{clock_words(one.unix, view.status.now)} {one.about} {one.what}" for one in told]
    workers = _worker_table(view, state, width, room)
    return Group(*map(_line, head), workers, _line(""), *map(_line, story), _footer(state))


def worker_rows(view: WatchedJob, state: ScreenState) -> Sequence[WorkerStatus]:
    """The workers that are shown, in the chosen order."""
    words = state.words.lower()
    shown = [worker for worker in view.status.workers if words in f"{worker} {worker.why}".lower()]
    key = _SORTS[state.sort % len(_SORTS)]
    if key == "pod":  # as they come: by index, of which a name's order knows nothing
        return shown
    return sorted(shown, key=lambda worker: str(attrgetter(key)(worker) or ""))


def first_row(row: int, rows: int, room: int) -> int:
    """Which row is at the top, so that row number `row` of `rows` is seen in `room` lines."""
    return max(0, min(row - room // 2, rows - room))


def _head(view: WatchedJob) -> Iterator[str]:
    yield headline(view.status)
    yield from fact_lines(view.status)
    if view.demand:
        where = "" if view.demand.everywhere else " (of this namespace; others may not be read)"
        yield f"  inference: {view.demand.waiting} pods wait, {view.demand.served} are served{where}"
    yield from (f"  note: {note}" for note in view.status.notes)


def _chart(view: WatchedJob, state: ScreenState, width: int) -> Iterator[str]:
    if not view.entries:
        return
    began = first_change(view.entries) or view.entries[0].unix
    seconds = max(60.0, view.status.now - began) if state.span < 0 else SPANS[state.span]
    highest = max(view.status.max_workers, 1)
    margin = len(str(highest)) + 1
    window = Window(end=view.status.now, seconds=seconds, width=max(10, width - margin))
    rows = chart(view.entries, window, highest=highest, height=CHART_HEIGHT)
    for number, row in enumerate(rows):
        label = str(highest) if number == 0 else "0" if number == CHART_HEIGHT - 1 else ""
        yield f"{label:>{margin - 1}} {row}"
    yield f"workers that train, the last {duration_words(seconds)}   {legend(rows[-1])}"


def _worker_table(view: WatchedJob, state: ScreenState, width: int, room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), width=width, header_style="bold")
    for title in ("", "worker", "state", "node", "since"):
        table.add_column(title.upper(), no_wrap=True)
    table.add_column("WHY", no_wrap=True, overflow="ellipsis", ratio=1)
    rows = worker_rows(view, state)
    first = first_row(state.row, len(rows), room)
    for number, worker in enumerate(rows[first : first + room], start=first):
        why = worker.why or (f"the one before was {worker.before}" if worker.before else "")
        table.add_row(
            ">" if number == state.row else " ",
            Text(worker.pod),
            Text(worker.state, style=_STYLES[worker.state]),
            Text(worker.node or "-"),
            clock_words(worker.since, view.status.now) if worker.since else "-",
            Text(why),
        )
    return table


def _footer(state: ScreenState) -> Text:
    typed = f"filter: {state.words}_  (enter keeps, esc clears)" if state.is_typing else ""
    kept = f"  [filter: {state.words}]" if state.words else ""
    return Text(typed or KEYS + kept, style="reverse", no_wrap=True, overflow="ellipsis")


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
