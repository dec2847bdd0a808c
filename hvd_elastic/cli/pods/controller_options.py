"""What the verbs of controllers that take turns have in common: their options, and their end by a signal."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT


def controller_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them, with the values that `run_controller` takes."""
    for option in (
        click.option("--log-format", envvar=ENV_LOG_FORMAT, type=click.Choice(["text", "json"]), default="text",
                     help="Log lines for people, or for a log collector."),
        click.option("--alive-file", type=click.Path(dir_okay=False, path_type=Path),
                     help="Touch this file after each look, for a liveness probe."),
        click.option("--period", type=click.FloatRange(min=1), default=20.0, show_default=True,
                     help="Seconds between looks."),
    ):  # fmt: skip
        command = option(command)
    return command


def run_controller(turn: Callable[[], object], *, period: float, alive_file: Path | None, log_format: str) -> None:
    """Take turns until SIGTERM or SIGINT."""
    from threading import Event

    from hvd_elastic import logs
    from hvd_elastic.decide.controller_turns import take_turns

    logs.configure(log_format)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    take_turns(turn, stop, period=period, alive=lambda: alive_file.touch() if alive_file else None)
