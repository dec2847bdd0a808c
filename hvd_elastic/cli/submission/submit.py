"""`hvd-elastic submit`: from a job description to a job that runs in a cluster."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, job_cluster_options
from hvd_elastic.cli.job_options import JobCommand, job_from, job_options, only_in
from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, say, show
from hvd_elastic.cli.progress import progress_line
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.mpijob.description.job_spec import JobSpec

if TYPE_CHECKING:
    from hvd_elastic.client.operations.submission import Submission

_COLUMNS = (Column(title="object", key="object"), Column(title="change", key="change"))


@click.command(cls=JobCommand)
@job_cluster_options(
    namespace_help="Where the job goes, unless it says so itself; by default the context's.",
    as_help="Submit as somebody else, if you may.",
)
@click.option("--dry-run", type=click.Choice(["client", "server"]),
              help="Write nothing: `client` prints the manifests, `server` has the cluster check them.")  # fmt: skip
@click.option("--diff", is_flag=True,
              help="Write nothing: print what would change. Exit code 1: something would, 2: an error.")  # fmt: skip
@click.option("--force-conflicts", is_flag=True, help="Take over fields that somebody else has set.")
@click.option("--wait", is_flag=True, help="Wait for the first step, and show what the job waits for.")
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
@job_options
def command(
    *,
    file: str | None,
    flags: Mapping[str, object],
    chosen: ChosenCluster,
    dry_run: str | None,
    diff: bool,
    force_conflicts: bool,
    wait: bool,
    output: Format,
) -> None:
    """Submit a job, or bring a job that runs up to its description.

    FILE is a job description (`-`: standard input). Every key of it is also a flag, and flags win. The job and what is
    beside it are applied as kubectl apply --server-side does, so doing it again changes nothing. Nothing is
    written unless the cluster accepts all of it.
    """
    if dry_run == "client":
        from hvd_elastic.mpijob.manifests.render import render

        spec = _job(file, flags, chosen.namespace, default=chosen.namespace)
        show(of_manifests(render(spec)), Format.YAML if output is Format.TABLE else output)
        return
    from hvd_elastic.client.connection.cluster_errors import ClusterError
    from hvd_elastic.mpijob.checks import job_notes

    try:
        cluster = chosen.cluster()
        spec = _job(file, flags, chosen.namespace, default=cluster.namespace)
        done = cluster.submit(spec, force=force_conflicts, dry_run=diff or dry_run == "server")
        for note in job_notes(spec):
            say(note)
    except ClusterError as error:
        if diff:
            error.exit_code = Exit.BAD_INPUT  # 1 is the answer that something would change
        raise
    if diff:
        _show_diff(done)
        return
    _show(done, output, rehearsed=dry_run == "server")
    if wait and not dry_run:
        with progress_line(done.name) as report:
            cluster.wait_for_first_step(done.name, namespace=done.namespace, report=report)


def _job(file: str | None, flags: Mapping[str, object], in_namespace: str | None, *, default: str | None) -> JobSpec:
    """The job, whose own namespace must be that of `-n`."""
    return job_from(file, flags, defaults={"namespace": default} if default else None, also=only_in(in_namespace))


def _show(done: "Submission", output: Format, *, rehearsed: bool) -> None:
    result = of_manifests(
        [one.after for one in done.objects],
        rows=[{"object": one.name, "change": one.change} for one in done.changes],
        columns=_COLUMNS,
    )
    show(Result(rows=result.rows, columns=_COLUMNS) if output is Format.TABLE else result, output)
    if rehearsed:
        say("the cluster accepts it; nothing was written")
    elif done.started_before and any(one.change == "configured" for one in done.objects):
        say(
            f"what has changed counts for worker pods to come, and the launcher keeps its image: hvd-elastic delete "
            f"{done.name}, and submit it again, to have all of it"
        )


def _show_diff(done: "Submission") -> None:
    changes = [one.diff for one in done.changes if one.diff]
    click.echo("".join(changes), nl=False)
    if changes:
        sys.exit(Exit.ERROR)
