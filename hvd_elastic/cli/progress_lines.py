"""How a verb shows what it waits for: one changing line on a terminal, else one line for each change."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress_lines(name: str) -> Iterator[Callable[[object], None]]:
    """A function that shows the progress of a job, on stderr. Whoever interrupts is told that the job goes on."""
    try:
        if sys.stderr.isatty():
            yield from _changing_line(name)
        else:
            yield lambda progress: click.echo(f"{name} {progress}", err=True)
    except KeyboardInterrupt:
        click.echo(f"\nno longer waiting; {name} goes on", err=True)
        sys.exit(130)


def _changing_line(name: str) -> Iterator[Callable[[object], None]]:
    """The line goes with the waiting; how it ended stays."""
    from rich.console import Console
    from rich.markup import escape

    told = name
    with Console(stderr=True).status(name) as status:

        def show(progress: object) -> None:
            nonlocal told
            told = f"{name} {progress}"
            status.update(escape(told))

        yield show
    click.echo(told, err=True)
