"""`hvd-elastic stage`: the data set of a job comes into its shared storage, before the job asks for a GPU."""

from collections.abc import Mapping

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, job_cluster_options
from hvd_elastic.cli.job_options import JobCommand, job_from, job_options, only_in
from hvd_elastic.cli.output import say


@click.command(cls=JobCommand)
@job_cluster_options(
    namespace_help="Where the job goes, unless it says so itself; by default the context's.",
    as_help="Ask as somebody else, if you may.",
)
@click.option("--wait", is_flag=True, help="Wait until the data set is whole.")
@job_options
def command(*, file: str | None, flags: Mapping[str, object], chosen: ChosenCluster, wait: bool) -> None:
    """Begin the copy that a job's `stage` describes, and nothing else of the job. Doing it again copies what changed.

    FILE is a job description (`-`: standard input). Every key of it is also a flag, and flags win.
    """
    import time

    from hvd_elastic.client.operations.staging_job import begin_stage, wait_for_stage

    cluster = chosen.cluster()
    spec = job_from(file, flags, defaults={"namespace": cluster.namespace}, also=only_in(chosen.namespace))
    client = cluster.client.within(spec.namespace)
    done = begin_stage(client, spec, sleep=time.sleep)
    say(f"{done.name} has begun" if done.begun else f"{done.name} is running already")
    say(
        f"kubectl logs -n {done.namespace} -f job/{done.name} shows how far it is, and of a job that was "
        "submitted hvd-elastic status too"
    )
    if wait:
        wait_for_stage(client, spec, sleep=time.sleep)
        say(f"{done.name} has ended: the data set is whole")
