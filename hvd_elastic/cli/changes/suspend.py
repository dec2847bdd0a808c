"""`hvd-elastic suspend`: a job gives its GPUs back until it is resumed."""

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import say


@click.command
@click.argument("job")
@cluster_options
def command(*, job: str, chosen: ChosenCluster) -> None:
    """Have all pods of a job deleted. It goes on from its durable checkpoint when it is resumed."""
    done = chosen.cluster().suspend(job)
    ending = f"; {done.ending}" if done.ending else ""
    say(f"{job} is suspended{ending}" if done.changed else f"{job} is suspended already")
    if done.changed and done.job.has_begun and done.job.description.checkpoint is None:
        say("it has no `checkpoint`, so it will begin with its first step")
