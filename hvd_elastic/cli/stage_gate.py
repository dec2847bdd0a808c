"""`hvd-elastic stage-gate`: the init container that keeps training from an unfinished data set."""

import sys
import time
from pathlib import Path
from typing import Final

import click

from hvd_elastic.mpijob.contract import Exit

_LOOK_SECONDS: Final = 5.0
_SAY_AGAIN_SECONDS: Final = 60.0


@click.command
@click.option("--source", required=True, metavar="URL", help="What should be in the folder.")
@click.option("--into", required=True, type=click.Path(path_type=Path), help="The folder.")
@click.option("--once", is_flag=True, help="Do not wait: exit code 1 says that the data set is not whole.")
@click.argument("rearrange", nargs=-1, metavar="[-- COMMAND...]")
def command(*, source: str, into: Path, once: bool, rearrange: tuple[str, ...]) -> None:
    """Wait until the folder holds all of URL, and COMMAND has run on it. It says what it waits for."""
    from hvd_elastic.staging import whats_missing

    said, said_at = "", 0.0
    while missing := whats_missing(into, source=source, rearrange=rearrange):
        if missing != said or time.monotonic() - said_at >= _SAY_AGAIN_SECONDS:
            said, said_at = missing, time.monotonic()
            click.echo(f"no training yet: {missing}", err=True)
        if once:
            sys.exit(Exit.ERROR)
        time.sleep(_LOOK_SECONDS)
    click.echo(f"{into} holds all of {source}", err=True)
