"""`hvd-elastic scale`: another number of workers."""

from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.changes.confirmation import confirm
from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import say
from hvd_elastic.cli.progress import progress_line

if TYPE_CHECKING:
    from hvd_elastic.client.operations.scaling import Scaling


@click.command
@click.argument("job")
@click.argument("workers", type=click.IntRange(min=1))
@click.option("--wait", is_flag=True, help="Wait until so many workers train.")
@click.option("--yes", is_flag=True, help="Do not ask, even if the job restarts.")
@cluster_options
def command(*, job: str, workers: int, wait: bool, yes: bool, chosen: ChosenCluster) -> None:
    """Give a job another number of workers, from its min to its max. Those that go leave training first.

    A job with queue.whole restarts from its checkpoint when its number of workers changes: this asks first.
    """
    cluster = chosen.cluster()
    done = cluster.scale(job, workers, approve=lambda scaling: _ask_if_it_restarts(scaling, yes=yes))
    say(f"{job}: from {done.before} to {workers} workers")
    if done.job.suspended:
        say("it is suspended, so this counts when it is resumed")
    elif wait:
        with progress_line(job) as report:
            cluster.wait_for_size(job, workers, report=report)


def _ask_if_it_restarts(scaling: "Scaling", *, yes: bool) -> None:
    if scaling.restarts:
        name, queue = scaling.job.name, scaling.job.queue
        stops = f"{name} is in the queue {queue}: Kueue stops all of it, and admits it anew with the other number"
        confirm(f"{stops}, so it restarts from its checkpoint. Scale it?", yes=yes)
