"""`hvd-elastic generate`: from a job description to manifests."""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from hvd_elastic.cli.job_options import JobCommand, job_from, job_options
from hvd_elastic.cli.output import Format, Result, output_option, show
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.manifest import Manifest
from hvd_elastic.mpijob.manifests.output import kustomize
from hvd_elastic.mpijob.manifests.output.yaml_stream import dump
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting.node_groups import node_groups as node_groups_of


@click.command(cls=JobCommand)
@click.option(
    "--as",
    "target",
    type=click.Choice([target.value for target in Target]),
    default=Target.MPIJOB.value,
    show_default=True,
    help="What to write: mpijob is kubeflow.org/v2beta1, mpijob-v1 the training-operator's kubeflow.org/v1.",
)
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a kustomize base there, one file an object, instead of printing.",
)
@click.option(
    "--node-groups",
    is_flag=True,
    help="Print the node groups that the job needs, with what lets them grow from zero, and no manifest.",
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
    output: Format,
) -> None:
    """Print the manifests of a job, in the order in which they are applied.

    FILE is a job description (`-`: standard input). Every key of it is a flag too, and flags win.

    hvd-elastic generate job.yaml | kubectl apply -f -
    """
    spec = job_from(file, flags)
    if node_groups:
        show(Result(rows=node_groups_of(spec), name_key="role"), output)
        return
    manifests = render(spec, Target(target))
    if output_dir is None:
        click.echo(_rendered(manifests, output), nl=False)
        return
    for path in kustomize.write(manifests, output_dir):
        click.echo(path, err=True)


def _rendered(manifests: list[Manifest], output: Format) -> str:
    match output:
        case Format.JSON:
            listing = {"apiVersion": "v1", "kind": "List", "items": manifests}
            return json.dumps(listing, indent=2, ensure_ascii=False) + "\n"
        case Format.NAME:
            return "".join(f"{_name(manifest)}\n" for manifest in manifests)
        case _:
            return dump(manifests)


def _name(manifest: Manifest) -> str:
    """`KIND.GROUP/NAME`, as kubectl prints it."""
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = manifest["kind"].lower()
    return f"{kind}.{group}/{manifest['metadata']['name']}" if group else f"{kind}/{manifest['metadata']['name']}"
