"""`hvd-elastic generate`: from a job description to manifests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from hvd_elastic.cli.job_options import JobCommand, job_from, job_options
from hvd_elastic.cli.output import Format, Result, of_manifests, output_option, show
from hvd_elastic.mpijob.description.keys import flag_of
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.node_groups import node_groups as node_groups_of
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.writers import kustomize


@click.command(cls=JobCommand)
@click.option(
    "--as",
    "target",
    type=click.Choice([target.value for target in Target]),
    default=Target.MPIJOB.value,
    show_default=True,
    help="Kind of job: mpijob is kubeflow.org/v2beta1, mpijob-v1 is the training-operator's kubeflow.org/v1.",
)
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a kustomize base to this folder, one file per object, instead of printing.",
)
@click.option(
    "--node-groups",
    is_flag=True,
    help="Print the node groups that the job needs, with what lets them grow from zero, and no manifests.",
)
@click.option(
    "--autoscaler",
    is_flag=True,
    help="Print the autoscaler's own manifests and no job: rights, and a Deployment of --image in --namespace.",
)
@output_option(Format.YAML, Format.JSON, Format.NAME, default=Format.YAML)
@job_options
def command(
    *,
    file: str | None,
    flags: Mapping[str, object],
    target: str,
    output_dir: Path | None,
    node_groups: bool,
    autoscaler: bool,
    output: Format,
) -> None:
    """Print the manifests of a job, in the order in which they are applied.

    FILE is a job description (`-`: standard input). Every key of it is also a flag, and flags win.

    hvd-elastic generate job.yaml | kubectl apply -f -
    """
    if autoscaler:
        show(of_manifests(_autoscaler(file, flags)), output)
        return
    spec = job_from(file, flags)
    if node_groups:
        groups = node_groups_of(spec)
        show(Result(data=groups, names=[group["role"] for group in groups]), output)
        return
    manifests = render(spec, Target(target))
    if output_dir is None:
        show(of_manifests(manifests), output)
        return
    for path in kustomize.write(kustomize.base_files(manifests), output_dir):
        click.echo(path, err=True)


def _autoscaler(file: str | None, flags: Mapping[str, object]) -> list[dict[str, Any]]:
    """One serves all jobs of the cluster, so it takes no job."""
    from hvd_elastic.decide.autoscale.controller_manifests import manifests as autoscaler_manifests

    image, namespace = flags.get("image"), str(flags.get("namespace") or "default")
    others = sorted(set(flags) - {"image", "namespace"})
    if file is not None or others:
        given = "FILE" if file is not None else flag_of(others[0])
        raise click.UsageError(f"{given} is of a job: --autoscaler takes only --image and --namespace")
    if not image:
        raise click.UsageError("--autoscaler needs --image: this project's, or one built from it")
    return autoscaler_manifests(image=str(image), namespace=namespace)
