"""`hvd-elastic profile`: how fast a job is at any size."""

import signal
import time
from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.cluster_options import cluster_options
from hvd_elastic.cli.output import Column, Format, Result, output_option, show, table
from hvd_elastic.cli.progress_lines import progress_lines

if TYPE_CHECKING:
    from hvd_elastic.jobs.profile.job_profile import JobProfile

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


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """`1,2,4`."""
    words = value.split(",") if value is not None else []
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise click.BadParameter(f"{value!r} is not a list of numbers of workers such as 1,2,4")
    return tuple(map(int, words))


@click.command
@click.argument("job")
@click.option("--sizes", callback=_sizes, metavar="N,N,...", help="First have it train with so many workers each.")
@click.option("--steps", type=click.IntRange(min=10), default=50, show_default=True, help="At each of --sizes.")
@click.option("--batch", type=click.IntRange(min=1), help="Samples of a step over all workers.")
@click.option("--batch-per-worker", type=click.IntRange(min=1), help="The same of each worker.")
@cluster_options
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, flag="--output")
def command(
    *,
    job: str,
    sizes: tuple[int, ...],
    steps: int,
    batch: int | None,
    batch_per_worker: int | None,
    context: str | None,
    namespace: str | None,
    impersonate: str | None,
    output: Format,
) -> None:
    """Say how long a job's steps take at any size, from what it has reported at some, and how far that may be off.

    With --sizes the job is scaled to each of them in turn, and then to the number that it had, also on Ctrl-C.
    """
    from hvd_elastic.jobs.cluster_client import ClusterClient
    from hvd_elastic.jobs.profile.profile_of_job import profile_of_job
    from hvd_elastic.jobs.profile.profile_text import profile_csv, profile_text
    from hvd_elastic.jobs.profile.size_visits import visit_sizes
    from hvd_elastic.policy.job_speeds import StepBatch

    if batch and batch_per_worker:
        raise click.UsageError("give --batch or --batch-per-worker, not both")
    cluster = ClusterClient.connect(context=context, namespace=namespace, impersonate=impersonate)
    if sizes:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this wants the former size back, too
        with progress_lines(job) as report:
            visit_sizes(cluster, job, sizes, steps=steps, report=report, sleep=time.sleep)
    given = StepBatch(total=batch, per_worker=batch_per_worker) if batch or batch_per_worker else None
    found = profile_of_job(cluster, job, batch=given)
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
