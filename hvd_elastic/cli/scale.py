"""`hvd-elastic scale`: another number of workers."""

import click

from hvd_elastic.cli.cluster_options import cluster_options
from hvd_elastic.cli.progress_lines import progress_lines


@click.command
@click.argument("job")
@click.argument("workers", type=click.IntRange(min=1))
@click.option("--wait", is_flag=True, help="Wait until so many workers train.")
@cluster_options
def command(
    *, job: str, workers: int, wait: bool, context: str | None, namespace: str | None, impersonate: str | None
) -> None:
    """Give a job another number of workers, from its min to its max. Those that go leave training first."""
    from hvd_elastic.jobs.cluster import Cluster

    cluster = Cluster(context=context, namespace=namespace, impersonate=impersonate)
    done = cluster.scale(job, workers)
    click.echo(f"{job}: from {done.before} to {workers} workers", err=True)
    if done.job.suspended:
        click.echo("it is suspended, so this counts when it is resumed", err=True)
    elif wait:
        with progress_lines(job) as report:
            cluster.wait_for_size(job, workers, report=report)
