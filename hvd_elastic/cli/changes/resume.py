"""`hvd-elastic resume`: a suspended job goes on."""

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import say


@click.command
@click.argument("job")
@cluster_options
def command(*, job: str, chosen: ChosenCluster) -> None:
    """Start a suspended job again, from its durable checkpoint."""
    cluster = chosen.cluster()
    done = cluster.resume(job)
    if not done.changed:
        say(f"{job} is not suspended")
        return
    say(f"{job} is resumed; its pods come next: hvd-elastic status {job} --wait-for training")
    if done.job.has_launched and (warning := cluster.resume_warning()):
        say(warning)
