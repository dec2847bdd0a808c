"""`hvd-elastic doctor`: whether a cluster has what elastic training needs."""

import secrets
import sys
from typing import TYPE_CHECKING, Final

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.mpijob.contract import GPU_RESOURCE, Engine, Exit
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.client.doctor.diagnosis import Diagnosis

_SUFFIX_BYTES: Final = 2
_COLUMNS = (
    Column(title="check", key="check"),
    Column(title="level", key="level"),
    Column(title="evidence", key="evidence"),
)


@click.command
@click.option(
    "--rehearse",
    is_flag=True,
    help="Try it, in a namespace of its own: a small job gives a GPU to inference and gets it back.",
)
@click.option("--image", help="With --rehearse: the job's image; by default that of the namespace's newest job.")
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine]),
    help="With --image: what the rehearsal trains over. An image without Horovod has torch alone. Default: horovod.",
)
@click.option("--gpus-resource", metavar="NAME", help=f"With --rehearse: by default {GPU_RESOURCE}.")
@cluster_options
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, flag="--output")
def command(
    *,
    rehearse: bool,
    image: str | None,
    engine: str | None,
    gpus_resource: str | None,
    chosen: ChosenCluster,
    output: Format,
) -> None:
    """Look whether this cluster has what elastic training needs, and say how to mend what is missing.

    Nothing is changed, but for what --rehearse makes and removes. What you may not read is a warning. The exit code is
    1 if there is an error.
    """
    if not rehearse and (image or gpus_resource):
        raise click.UsageError("--image and --gpus-resource are of --rehearse")
    if engine and not image:
        raise click.UsageError("--engine is of --image: that of the namespace's newest job is known")

    cluster = chosen.connect()
    _show(_rehearse(cluster, image, engine, gpus_resource) if rehearse else _examine(cluster), output)


def _examine(cluster: "ClusterClient") -> "Sequence[Diagnosis]":
    from hvd_elastic.client.doctor.examination import examine
    from hvd_elastic.client.doctor.fact_reader import FactReader

    return examine(FactReader(cluster, cluster.namespace).read())


def _rehearse(
    cluster: "ClusterClient", image: str | None, engine: str | None, resource: str | None
) -> "Sequence[Diagnosis]":
    from hvd_elastic.client.doctor.rehearsal import Rehearsal
    from hvd_elastic.client.doctor.rehearsal_manifests import RehearsalImage
    from hvd_elastic.client.doctor.rehearsal_record import judge

    rehearsal = Rehearsal(
        cluster,
        suffix=secrets.token_hex(_SUFFIX_BYTES),
        image=RehearsalImage(name=image, engine=Engine(engine or Engine.HOROVOD)) if image else None,
        resource=resource or GPU_RESOURCE,
        say=say,
    )
    return judge(rehearsal.run())


def _show(findings: "Sequence[Diagnosis]", output: Format) -> None:
    from hvd_elastic.client.doctor.diagnosis import Level

    rows = [
        {
            "check": finding.check,
            "level": str(finding.verdict.level),
            "evidence": finding.verdict.evidence,
            "fix": finding.verdict.fix or None,
        }
        for finding in findings
    ]
    faulty = [row for row in rows if row["level"] != Level.OK]
    show(Result(rows=rows, columns=_COLUMNS, names=[f"{row['level']}/{row['check']}" for row in faulty]), output)
    errors = sum(row["level"] == Level.ERROR for row in rows)
    if output is Format.TABLE:
        for row in faulty:
            click.echo(f"\n{row['check']}: {row['fix']}")
        warnings = count_words(len(faulty) - errors, "warning")
        say(f"{count_words(errors, 'error')}, {warnings}, {len(rows) - len(faulty)} ok")
    if errors:
        sys.exit(Exit.ERROR)
