"""How a verb shows how far it is: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

_LINE_SECONDS: Final = 5.0
"""Between two lines without a terminal. What is done sooner says nothing."""


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, str], None]]:
    """A function that shows a part from 0 to 1, and what is being done, on stderr."""
    yield from _bar(what) if sys.stderr.isatty() else _lines(what)


def _bar(what: str) -> Iterator[Callable[[float, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda part, doing: progress.update(task, completed=part, description=f"{what}: {doing}")


def _lines(what: str) -> Iterator[Callable[[float, str], None]]:
    last = time.monotonic()

    def show(part: float, doing: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            click.echo(f"{what}: {doing}, {part:.0%}", err=True)

    yield show
