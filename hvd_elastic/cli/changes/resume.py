"""`hvd-elastic resume`: a suspended job goes on."""

import click

from hvd_elastic.cli.cluster_options import cluster_options


@click.command
@click.argument("job")
@cluster_options
def command(*, job: str, context: str | None, namespace: str | None, impersonate: str | None) -> None:
    """Start a suspended job again, from its durable checkpoint."""
    from hvd_elastic.client.cluster import Cluster

    done = Cluster(context=context, namespace=namespace, impersonate=impersonate).resume(job)
    click.echo(f"{job} is resumed" if done.changed else f"{job} is not suspended", err=True)
    if done.changed and done.job.has_launched:
        click.echo(
            "if workers run and no launcher comes, the MPI Operator lacks a right: hvd-elastic operator-role", err=True
        )
