"""`hvd-elastic submit`: from a job description to a job that runs in a cluster."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, job_cluster_options
from hvd_elastic.cli.job_options import JobCommand, job_from, job_options, only_in
from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, say, show
from hvd_elastic.cli.progress import progress_line
from hvd_elastic.mpijob.checks import job_notes
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.customization.patches import object_name
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.render import render, render_customized
from hvd_elastic.mpijob.problems import InvalidInputError

if TYPE_CHECKING:
    from hvd_elastic.client.operations.submission import Submission

_COLUMNS = (Column(title="object", key="object"), Column(title="change", key="change"))


@click.command(cls=JobCommand)
@job_cluster_options(
    namespace_help="Where the job goes, unless it says so itself; by default the context's.",
    as_help="Submit as somebody else, if you may.",
)
@click.option("-k", "--kustomize", "overlay", metavar="DIR",
              type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Submit a kustomize overlay of a base of `generate --output-dir`, in place of FILE.")  # fmt: skip
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
    overlay: Path | None,
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
    if overlay and (file or flags):
        raise click.UsageError("-k takes neither FILE nor keys of the job: its base has them")
    if dry_run == "client":
        spec, beside = _wanted(file, flags, overlay, chosen.namespace, default=chosen.namespace)
        show(of_manifests([*beside, *render(spec)]), Format.YAML if output is Format.TABLE else output)
        return
    from hvd_elastic.client.connection.cluster_errors import ClusterError

    try:
        cluster = chosen.cluster()
        spec, beside = _wanted(file, flags, overlay, chosen.namespace, default=cluster.namespace)
        done = cluster.submit(spec, beside=beside, force=force_conflicts, dry_run=diff or dry_run == "server")
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


def _wanted(
    file: str | None,
    flags: Mapping[str, object],
    overlay: Path | None,
    in_namespace: str | None,
    *,
    default: str | None,
) -> tuple[JobSpec, Sequence[Manifest]]:
    """The job, whose own namespace must be that of `-n`, and the objects that an overlay adds. Says what is changed."""
    also = only_in(in_namespace)
    if overlay is None:
        spec = job_from(file, flags, defaults={"namespace": default} if default else None, also=also)
        for effect in render_customized(spec).effects:
            say(str(effect))
        _say_notes(spec)
        return spec, ()
    from hvd_elastic.client.operations import kustomize_overlay

    found = kustomize_overlay.read_overlay(kustomize_overlay.build(overlay), source=str(overlay))
    if problems := list(also(found.spec)):
        raise InvalidInputError(problems)
    added = ", ".join(map(object_name, found.beside))
    say(f"{overlay} changes {', '.join(found.changed) or 'nothing'}{added and f', and adds {added}'}")
    _say_notes(found.spec)
    return found.spec, found.beside


def _say_notes(spec: JobSpec) -> None:
    for note in job_notes(spec):
        say(note)


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
