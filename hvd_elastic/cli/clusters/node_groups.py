"""`hvd-elastic node-groups`: from a job description to the node groups that its pods fit on."""

from collections.abc import Mapping

import click

from hvd_elastic.cli.job_options import JobCommand, job_from, job_options
from hvd_elastic.cli.output import Format, Result, output_option, show
from hvd_elastic.mpijob.manifests.node_groups import node_groups


@click.command(cls=JobCommand)
@output_option(Format.YAML, Format.JSON, Format.NAME, default=Format.YAML)
@job_options
def command(*, file: str | None, flags: Mapping[str, object], output: Format) -> None:
    """Print the node groups that a job needs, with the labels, taints and tags by which they grow from no node.

    FILE is a job description (`-`: standard input). Every key of it is also a flag, and flags win.
    """
    groups = node_groups(job_from(file, flags))
    show(Result(data=groups, names=[group["role"] for group in groups]), output)
