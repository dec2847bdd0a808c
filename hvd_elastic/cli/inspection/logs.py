"""`hvd-elastic logs`: what all ranks of a job print, and its launcher."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TextIO

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Format, output_option, say
from hvd_elastic.cli.standard_streams import uncleaned
from hvd_elastic.system.plain_words import printable_json

if TYPE_CHECKING:
    from hvd_elastic.client.logs.log_line import LogLine

_DURATION: Final = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_UNITS: Final = (86400, 3600, 60, 1)
_INTERRUPTED: Final = 130
"""The exit code of what Ctrl-C ended, as shells report it."""


def _duration(text: str) -> int:
    """Seconds, written as kubectl writes them: `90s`, `10m`, `1h30m`."""
    match = _DURATION.fullmatch(text)
    seconds = sum(int(part or 0) * unit for part, unit in zip(match.groups(), _UNITS, strict=True)) if match else 0
    if seconds < 1:
        raise click.BadParameter(f"{text!r} is not a time such as 90s, 10m or 1h30m")
    return seconds


@click.command
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on over resizes and new launchers until the job has ended.")
@click.option("--rank", "ranks", type=click.IntRange(min=0), multiple=True, help="Only this rank; may be repeated.")
@click.option("--launcher", is_flag=True, help="Only the launcher's own lines; with --rank, these too.")
@click.option("--since", type=_duration, metavar="TIME",
              help="Only what is no older than this (90s, 10m, 1h30m), of all launchers.")  # fmt: skip
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of those asked for.")
@click.option("-p", "--previous", is_flag=True, help="The launcher before the last one.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option(
    "--raw", is_flag=True, help="Lines as they were printed, with colours and all else that a terminal obeys."
)
@cluster_options
@output_option(Format.TEXT, Format.JSON, default=Format.TEXT, flag="--output")
def command(
    *,
    job: str,
    follow: bool,
    ranks: tuple[int, ...],
    launcher: bool,
    since: int | None,
    tail: int | None,
    previous: bool,
    timestamps: bool,
    raw: bool,
    chosen: ChosenCluster,
    output: Format,
) -> None:
    """Print what all ranks of JOB print, with the rank in front, and what its launcher says.

    It is the log of the last launcher; with --since, of all whose pods are left. Ctrl-C leaves the job alone.
    """
    if raw and output is Format.JSON:
        raise click.UsageError("--raw is for -o text: JSON has all that was printed")
    if follow and previous:
        raise click.UsageError("--previous is over: it cannot be followed")
    from hvd_elastic.client.job_lookup import find_job
    from hvd_elastic.client.logs.job_log import JobLog
    from hvd_elastic.client.logs.log_line import LogSelection
    from hvd_elastic.client.logs.log_reading import LogRequest

    request = LogRequest(
        follow=follow,
        selection=LogSelection(ranks=frozenset(ranks), launcher=launcher),
        since_seconds=since,
        tail=tail,
        previous=previous,
    )
    shown: Callable[[LogLine], str] = _as_json if output is Format.JSON else _with_time if timestamps else str
    try:
        cluster = chosen.connect()
        mpijob = find_job(cluster, job, cluster.namespace).job
        lines = map(shown, JobLog(cluster, mpijob, say=say).read(request))
        _print(lines, uncleaned(sys.stdout) if raw else sys.stdout, flush=follow)
    except KeyboardInterrupt:
        say(f"job {job} goes on; nothing was changed")
        sys.exit(_INTERRUPTED)


def _print(lines: Iterator[str], stream: TextIO, *, flush: bool) -> None:
    for line in lines:
        stream.write(f"{line}\n")
        if flush:
            stream.flush()
    stream.flush()


def _with_time(line: "LogLine") -> str:
    return f"{line.time} {line}"


def _as_json(line: "LogLine") -> str:
    return printable_json(asdict(line))
