"""`hvd-elastic restart`: a job begins anew from its durable checkpoint."""

import click

from hvd_elastic.cli.changes.confirmation import confirm
from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import say


@click.command
@click.argument("job")
@click.option("--yes", is_flag=True, help="Do not ask, even if training is lost.")
@cluster_options
def command(*, job: str, yes: bool, chosen: ChosenCluster) -> None:
    """Begin a job anew from its last durable checkpoint, whether it goes on or has ended.

    A job that goes on gets a new launcher, which counts no restart. One that has ended is made again.
    """
    cluster = chosen.cluster()
    plan = cluster.plan_restart(job)
    if plan.loss:
        confirm(f"Restarting {job} loses {plan.loss}. Restart it?", yes=yes)
    cluster.restart(plan)
    say(str(plan))
