"""How a verb shows on stderr how far it is: in place on a terminal, else in lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from hvd_elastic.cli.output import say

_LINE_SECONDS: Final = 5.0
"""Between two lines of what has a bar on a terminal. What is done sooner says nothing."""


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, str], None]]:
    """A function that shows a part from 0 to 1, and what is being done."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def show(part: float, doing: str) -> None:
            nonlocal last
            if time.monotonic() - last >= _LINE_SECONDS:
                last = time.monotonic()
                say(f"{what}: {doing}, {part:.0%}")

        yield show
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from hvd_elastic.cli.clean_console import CleanConsole

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=CleanConsole(sys.stderr), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda part, doing: progress.update(task, completed=part, description=f"{what}: {doing}")


@contextmanager
def progress_line(name: str) -> Iterator[Callable[[object], None]]:
    """A function that shows each change of a job; the last stays. Whoever interrupts is told that the job goes on."""
    try:
        if not sys.stderr.isatty():
            yield lambda progress: say(f"{name} {progress}")
            return
        from rich.markup import escape

        from hvd_elastic.cli.clean_console import CleanConsole

        told = name
        with CleanConsole(sys.stderr).status(name) as status:

            def show(progress: object) -> None:
                nonlocal told
                told = f"{name} {progress}"
                status.update(escape(told))

            yield show
        say(told)
    except KeyboardInterrupt:
        click.echo(f"\nno longer waiting; {name} goes on", err=True)
        sys.exit(130)
