"""`hvd-elastic profile`: how fast a job is at any size."""

from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.output import Column, Format, Result, output_option, show, table
from hvd_elastic.cli.size_options import SizeVisits, size_options, visited_profile

if TYPE_CHECKING:
    from hvd_elastic.client.profile.job_profile import JobProfile

_COLUMNS = (
    Column(title="workers", key="workers", right=True),
    Column(title="nodes", key="nodes", right=True),
    Column(title="steps", key="steps", right=True),
    Column(title="measured", key="measured", right=True),
    Column(title="fitted", key="fitted", right=True),
    Column(title="samples/s", key="speed", right=True),
    Column(title="half within", key="half", right=True),
    Column(title="9 of 10 within", key="most", right=True),
)


@click.command
@size_options
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, flag="--output")
def command(*, output: Format, **asked: Any) -> None:
    """Say how long a job's steps take at any size, from what it has reported at some, and how far that may be off.

    With --sizes the job is scaled to each of them in turn, and then to the number that it had, also on Ctrl-C.
    """
    from hvd_elastic.client.profile.profile_text import profile_csv, profile_text

    found = visited_profile(SizeVisits(**asked))
    written = {
        Format.TABLE: lambda: profile_text(found, table(_rows(found), _COLUMNS)),
        Format.CSV: lambda: profile_csv(found),
    }
    show(Result(data=found.document(), written=written), output)


def _rows(profile: "JobProfile") -> list[dict[str, object]]:
    return [
        {
            "workers": size["workers"],
            "nodes": size["nodes"],
            "steps": size["steps"] or None,
            "measured": f"{size['measured_seconds']:.4g} s" if size["measured_seconds"] else None,
            "fitted": f"{size['step_seconds']:.4g} s",
            "speed": f"{size['samples_per_second']:.4g}",
            "half": f"{size['doubt']['half']:.0%}",
            "most": f"{size['doubt']['most']:.0%}",
        }
        for size in profile.sizes()
    ]
