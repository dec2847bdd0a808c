"""The live view of one job, as text: the sentence, the figures, the chart, the workers, the story."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from rich.console import Group
from rich.text import Text

from hvd_elastic.client.report.status_text import fact_lines, headline
from hvd_elastic.client.report.words.time_words import clock_words, duration_words
from hvd_elastic.client.report.worker_status import WorkerPodState, WorkerStatus
from hvd_elastic.client.watch.screen_state import SPANS, ScreenState
from hvd_elastic.client.watch.screen_text import line, visible, wrapped
from hvd_elastic.client.watch.watched_job import WatchedJob
from hvd_elastic.client.watch.world_chart import Window, chart, first_change, legend
from hvd_elastic.system.plain_words import count_words, cut_middle

CHART_HEIGHT: Final = 5
"""On a screen of 24 lines; a quarter of what a higher one has more goes to the chart."""
STORY_LINES: Final = 4
"""That the workers leave to the story; it has all that they do not take."""
KEYS: Final = "up/down choose  enter log  s sort  / filter  +/- zoom  esc back  q quit"
_SORTS: Final = ("pod", "state", "node", "since")
_STYLES: Final = {
    WorkerPodState.TRAINING: "green",
    WorkerPodState.READY: "cyan",
    WorkerPodState.STARTING: "cyan",
    WorkerPodState.PENDING: "yellow",
    WorkerPodState.QUEUED: "yellow",
    WorkerPodState.LEAVING: "magenta",
    WorkerPodState.ENDED: "red",
    WorkerPodState.ABSENT: "yellow",
}


def job_screen(view: WatchedJob, state: ScreenState, *, width: int, height: int) -> Group:
    """At most `height` lines of at most `width` characters."""
    head = [*_head(view, width), *_chart(view, state, width, CHART_HEIGHT + max(0, height - 24) // 4)]
    story = [
        wrapped(f"{clock_words(one.unix, view.status.now)} {one.about} {one.what}", width, indent="  ")
        for one in view.story[-height:]
    ]
    room = height - len(head) - 3  # the titles, a line between, the keys
    titles, workers = _workers(view, state, width)
    least = min(STORY_LINES, sum(map(len, story)))
    seen = visible([len(block) for block in workers], state.row, max(3, room - least))
    shown = [words for number in seen for words in workers[number]]
    last = visible([len(one) for one in story], len(story), room - len(shown))
    told = [line(words) for number in last for words in story[number]]
    return Group(*map(line, head), titles, *shown, line(""), *told, _footer(state))


def worker_rows(view: WatchedJob, state: ScreenState) -> Sequence[WorkerStatus]:
    """The workers that are shown, in the chosen order."""
    words = state.words.lower()
    shown = [worker for worker in view.status.workers if words in f"{worker} {worker.why}".lower()]
    key = _SORTS[state.sort % len(_SORTS)]
    if key == "pod":  # as they come: by index, of which a name's order knows nothing
        return shown
    return sorted(shown, key=lambda worker: str(attrgetter(key)(worker) or ""))


def _head(view: WatchedJob, width: int) -> Iterator[str]:
    yield from wrapped(headline(view.status), width, indent="  ")
    yield from (cut_middle(words, width) for words in fact_lines(view.status))
    if view.demand:
        where = "" if view.demand.everywhere else " (of this namespace; others may not be read)"
        waiting = count_words(view.demand.waiting, "pod")
        yield cut_middle(f"  inference: {waiting} waiting, {view.demand.served} served{where}", width)
    for note in view.status.notes:
        yield from wrapped(f"  note: {note}", width, indent="    ")


def _chart(view: WatchedJob, state: ScreenState, width: int, height: int) -> Iterator[str]:
    if not view.entries:
        return
    began = first_change(view.entries) or view.entries[0].unix
    seconds = max(60.0, view.status.now - began) if state.span < 0 else SPANS[state.span]
    highest = max(view.status.max_workers, 1)
    margin = len(str(highest)) + 1
    window = Window(end=view.status.now, seconds=seconds, width=max(10, width - margin))
    rows = chart(view.entries, window, highest=highest, height=height)
    for number, row in enumerate(rows):
        label = str(highest) if number == 0 else "0" if number == height - 1 else ""
        yield f"{label:>{margin - 1}} {row}"
    yield cut_middle(f"workers that train, the last {duration_words(seconds)}   {legend(rows[-1])}", width)


def _workers(view: WatchedJob, state: ScreenState, width: int) -> tuple[Text, list[list[Text]]]:
    """The line of titles, and of each worker its line, with the reason beside it, or below it where one is too long."""
    rows, now = worker_rows(view, state), view.status.now
    cells = [
        (row.pod, str(row.state), row.node or "-", clock_words(row.since, now) if row.since else "-", _slow(row))
        for row in rows
    ]
    titles = ("WORKER", "STATE", "NODE", "SINCE", "SLOW" if any(row[-1] for row in cells) else "")
    pod, doing, node, since, slow = (max(map(len, column)) for column in zip(titles, *cells, strict=True))
    node = max(len("NODE"), min(node, width - pod - doing - since - slow - bool(slow) - 5))
    reasons = [row.why or (f"the one before was {row.before}" if row.before else "") for row in rows]
    beside = pod + doing + node + since + slow + 6 + bool(slow) + max(map(len, reasons), default=0) <= width

    def cut(row: tuple[str, str, str, str, str]) -> str:
        words = f"{row[0]:{pod}} {row[1]:{doing}} {cut_middle(row[2], node):{node}} {row[3]:{since}}"
        return f"{words} {row[4]:{slow}}" if slow else words

    blocks = []
    for number, (worker, row, why) in enumerate(zip(rows, cells, reasons, strict=True)):
        mark = "> " if number == state.row else "  "
        text = line(f"{mark}{cut(row)} {why if beside else ''}".rstrip())
        text.stylize(_STYLES[worker.state], len(mark) + pod + 1, len(mark) + pod + 1 + doing)
        below = wrapped(f"    {why}", width, indent="    ") if why and not beside else []
        blocks.append([text, *map(line, below)])
    return line(f"  {cut(titles)}{' WHY' if beside else ''}".rstrip(), "bold"), blocks


def _slow(worker: WorkerStatus) -> str:
    """How many times as long as the others it takes."""
    return "" if worker.slow is None else f"{worker.slow:.1f}x"


def _footer(state: ScreenState) -> Text:
    typed = f"filter: {state.words}_  (enter keeps, esc clears)" if state.is_typing else ""
    kept = f"  [filter: {state.words}]" if state.words else ""
    return line(typed or KEYS + kept, "reverse", overflow="ellipsis")
