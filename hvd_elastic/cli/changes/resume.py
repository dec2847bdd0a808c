"""`hvd-elastic resume`: a suspended job goes on."""

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options


@click.command
@click.argument("job")
@cluster_options
def command(*, job: str, chosen: ChosenCluster) -> None:
    """Start a suspended job again, from its durable checkpoint."""
    done = chosen.cluster().resume(job)
    click.echo(f"{job} is resumed" if done.changed else f"{job} is not suspended", err=True)
    if done.changed and done.job.has_launched:
        click.echo(
            "if workers run and no launcher comes, the MPI Operator lacks a right: hvd-elastic operator-role", err=True
        )
