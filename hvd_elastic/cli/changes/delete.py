"""`hvd-elastic delete`: jobs go, with what stands beside them."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.changes.confirmation import confirm
from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import say

if TYPE_CHECKING:
    from hvd_elastic.client.operations.deletion import DeletionPlan


@click.command
@click.argument("jobs", nargs=-1, required=True)
@click.option(
    "--volumes",
    is_flag=True,
    help="Delete the volumes that were made for the job too, with their data. What is in a bucket stays.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def command(*, jobs: Sequence[str], volumes: bool, yes: bool, chosen: ChosenCluster) -> None:
    """Delete jobs with everything beside them. Says what goes, and asks. Prints the name of each object that went.

    Volumes that were made for a job stay, unless --volumes. What it has written to a bucket, checkpoints or results,
    always stays.
    """
    cluster = chosen.cluster()
    plans = [cluster.plan_deletion(job) for job in dict.fromkeys(jobs)]
    for plan in plans:
        _tell(plan, volumes=volumes)
    confirm(f"Delete {', '.join(plan.name for plan in plans)}?", yes=yes)
    for plan in plans:
        if plan.ending:
            say(f"{plan.name}: waiting for {plan.ending}")
        try:
            deleted = cluster.delete(plan, volumes=volumes)
        except KeyboardInterrupt:
            click.echo(f"\nno longer waiting; the deletion of {plan.name} goes on", err=True)
            sys.exit(130)
        for part in deleted:
            click.echo(str(part))


def _tell(plan: "DeletionPlan", *, volumes: bool) -> None:
    goes = ", ".join(map(str, plan.parts(volumes=volumes))) or "nothing"
    say(f"{plan.name} in namespace {plan.namespace}: goes: {goes}")
    if plan.volumes and not volumes:
        say(f"stays (--volumes deletes it): {', '.join(map(str, plan.volumes))}")
