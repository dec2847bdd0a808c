"""`hvd-elastic generate`: from a job description to manifests."""

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from hvd_elastic.cli.job_options import JobCommand, job_from, job_options
from hvd_elastic.cli.output import Format, of_manifests, output_option, say, show
from hvd_elastic.mpijob.checks import job_assumptions, job_notes
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.render import render_customized
from hvd_elastic.mpijob.manifests.writers import kustomize


def _moved(flag: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A flag that is now the verb of its name."""

    def refuse(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        if given:
            raise click.UsageError(f"{flag} is a verb of its own now: hvd-elastic {flag[2:]}")

    return click.option(flag, is_flag=True, hidden=True, is_eager=True, expose_value=False, callback=refuse)


@click.command(cls=JobCommand)
@click.option(
    "--as",
    "target",
    type=click.Choice([target.value for target in Target]),
    default=Target.MPIJOB.value,
    show_default=True,
    help="Kind of job: mpijob is kubeflow.org/v2beta1; mpijob-v1 and pytorchjob are the legacy training-operator's.",
)
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a kustomize base to this folder, one file per object, instead of printing.",
)
@_moved("--node-groups")
@_moved("--autoscaler")
@output_option(Format.YAML, Format.JSON, Format.NAME, default=Format.YAML)
@job_options
def command(
    *,
    file: str | None,
    flags: Mapping[str, object],
    target: str,
    output_dir: Path | None,
    output: Format,
) -> None:
    """Print the manifests of a job, in the order in which they are applied.

    FILE is a job description (`-`: standard input). Every key of it is also a flag, and flags win.

    hvd-elastic generate job.yaml | kubectl apply --server-side -f -
    """
    job = job_from(file, flags)
    made = render_customized(job, Target(target))
    for effect in made.effects:
        say(str(effect))
    for note in (*job_assumptions(job), *job_notes(job)):
        say(note)
    if output_dir is None:
        show(of_manifests(made.manifests), output)
        return
    for path in kustomize.write(kustomize.base_files(made.manifests), output_dir):
        say(str(path))
