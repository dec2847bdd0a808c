"""`hvd-elastic stage-copier`: the program of a stage's pod. It may as well run anywhere."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hvd_elastic.cli.output import say
from hvd_elastic.cli.progress import progress_bar
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from hvd_elastic.staging import StageProgress

_REPORT_SECONDS: Final = 0.1


@click.command
@click.option(
    "--source", required=True, metavar="URL", help="s3://bucket/prefix, gs://, az://, or https://host/folder/list.tsv"
)
@click.option("--into", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder.")
@click.option("--endpoint", metavar="URL", help="Of another service than the cloud's own.")
@click.option("--threads", type=click.IntRange(1, 256), default=16, show_default=True,
              help="Objects, or parts of large ones, that are read at once.")  # fmt: skip
@click.argument("rearrange", nargs=-1, metavar="[-- COMMAND...]")
def command(*, source: str, into: Path, endpoint: str | None, threads: int, rearrange: tuple[str, ...]) -> None:
    """Copy what is below URL into a folder, compare it to what the store says, and write the marker _SUCCESS.

    COMMAND then runs in the folder, once for each data set. Doing it all again copies what has changed.
    """
    from hvd_elastic.staging import stage
    from hvd_elastic.staging.progress_line import progress_words

    begun, next_seconds = False, 0.0
    with progress_bar(source) as show:

        def report(progress: "StageProgress") -> None:
            nonlocal begun, next_seconds
            if time.monotonic() < next_seconds and not progress.is_whole:
                return  # words for each of many small objects take as long as its copy
            next_seconds = time.monotonic() + _REPORT_SECONDS
            show(progress.part, progress_words(progress))
            # `status` reads the log. It should know from the start how much comes: the first object may be a large one.
            # And the rearrangement may take hours, in which it should not read that objects are missing.
            if (not begun or progress.is_whole) and not sys.stderr.isatty():
                say(f"{source}: {progress_words(progress)}")
            begun = True

        done = stage(source, into, endpoint=endpoint, threads=threads, rearrange=rearrange, report=report)
    whole = f"{count_words(done.marker.objects, 'object')}, {_gib(done.marker.size_bytes)} GiB"
    click.echo(f"{source} is whole in {into}: {whole}; {done.copied} copied, {done.kept} kept, {done.removed} removed")
    if done.marker.unverified:
        say(f"the store says nothing of the bytes of {count_words(done.marker.unverified, 'object')}")
    if rearrange:
        click.echo("rearranged" if done.rearranged else "rearranged before")


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f}"
