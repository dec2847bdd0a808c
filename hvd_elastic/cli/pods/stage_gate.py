"""`hvd-elastic stage-gate`: the init container that keeps training from an unfinished data set."""

import sys
import time
from pathlib import Path
from typing import Final

import click

from hvd_elastic.cli.output import say
from hvd_elastic.mpijob.contract import STAGE_FOLDER, STAGE_KEY, Exit

_LOOK_SECONDS: Final = 5.0
_SAY_AGAIN_SECONDS: Final = 60.0


@click.command
@click.option("--wanted", type=click.Path(dir_okay=False, path_type=Path), default=f"{STAGE_FOLDER}/{STAGE_KEY}",
              show_default=True, help="JSON: what should be in which folder.")  # fmt: skip
@click.option("--once", is_flag=True, help="Do not wait: exit code 1 says that the data set is not whole.")
def command(*, wanted: Path, once: bool) -> None:
    """Wait until a folder holds all of a data set, and its rearrange command has run. It says what it waits for.

    The file WANTED is read at each look: it may come to name another data set meanwhile.
    """
    from hvd_elastic.staging import WantedData, whats_missing

    said, said_at = "", 0.0
    while missing := whats_missing(data := WantedData.read(wanted)):
        if missing != said or time.monotonic() - said_at >= _SAY_AGAIN_SECONDS:
            said, said_at = missing, time.monotonic()
            say(f"no training yet: {missing}")
        if once:
            sys.exit(Exit.ERROR)
        time.sleep(_LOOK_SECONDS)
    say(f"{data.into} holds all of {data.source}")
