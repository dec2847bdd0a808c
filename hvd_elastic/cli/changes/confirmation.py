"""Asking before something is lost."""

import sys

import click


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless `yes`. Raises UsageError where nobody can answer, Abort if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can answer here: say --yes.")
    click.confirm(question, abort=True, err=True)
