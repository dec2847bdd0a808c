"""The view without a terminal: a line for each thing that happens, and one with the figures from time to time."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from hvd_elastic.client.report.job_list import ListedJob
from hvd_elastic.client.report.status_text import headline
from hvd_elastic.client.report.story import Happening
from hvd_elastic.client.watch.watched_job import WatchedJob

FIGURES_SECONDS: Final = 60.0
"""How often the figures are told while nothing happens."""
MOST_KNOWN: Final = 20_000
"""Happenings that are kept in mind, and no longer part of the story: who watches for weeks keeps no more."""


def job_lines(views: Iterator[WatchedJob], *, clock: Callable[[], float] = time.monotonic) -> Iterator[str]:
    """The lines of one job, until it has ended."""
    told: set[tuple[float, str, str]] = set()
    said, said_at, is_first = "", float("-inf"), True
    for view in views:
        for happening in () if is_first else view.story:
            if _key(happening) not in told:
                yield f"{_stamp(happening.unix)} {happening.about} {happening.what}"
        known = set(map(_key, view.story))
        told = told | known if len(told) < MOST_KNOWN + len(known) else known
        is_first = False
        words = headline(view.status)
        if words != said or clock() >= said_at + FIGURES_SECONDS:
            said, said_at = words, clock()
            step = f", step {view.status.step}" if view.status.step >= 0 else ""
            yield f"{_stamp(view.status.now)} {words}{step}"
        if view.status.state.is_final:
            return


def list_lines(lists: Iterator[list[ListedJob]]) -> Iterator[str]:
    """A line for each job whose state or size has changed."""
    told: dict[tuple[str, str], str] = {}
    for jobs in lists:
        names = {(job.namespace, job.name) for job in jobs}
        told = {name: words for name, words in told.items() if name in names}
        for job in jobs:
            words = f"{job.state}, {job.size} of [{job.min_workers}..{job.max_workers}]"
            if told.get((job.namespace, job.name)) != words:
                told[job.namespace, job.name] = words
                yield f"{_stamp(time.time())} {job.namespace}/{job.name}: {words}"


def _key(happening: Happening) -> tuple[float, str, str]:
    return happening.unix, happening.about, happening.what


def _stamp(unix: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix))
