"""`hvd-elastic doctor`: whether a cluster has what elastic training needs."""

import sys

import click

from hvd_elastic.cli.cluster_options import cluster_options
from hvd_elastic.cli.output import Column, Format, Result, output_option, show
from hvd_elastic.mpijob.contract import Exit

_COLUMNS = (
    Column(title="check", key="check"),
    Column(title="level", key="level"),
    Column(title="evidence", key="evidence"),
)


@click.command
@cluster_options
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, flag="--output")
def command(*, context: str | None, namespace: str | None, impersonate: str | None, output: Format) -> None:
    """Look whether this cluster has what elastic training needs, and say how to mend what is missing.

    Nothing is changed. What you may not read is a warning. The exit code is 1 if there is an error.
    """
    from hvd_elastic.jobs.cluster_client import ClusterClient
    from hvd_elastic.jobs.doctor.diagnosis import Level
    from hvd_elastic.jobs.doctor.examination import examine
    from hvd_elastic.jobs.doctor.fact_reader import FactReader

    cluster = ClusterClient.connect(context=context, namespace=namespace, impersonate=impersonate)
    findings = examine(FactReader(cluster, cluster.namespace).read())
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
        click.echo(f"{errors} errors, {len(faulty) - errors} warnings, {len(rows) - len(faulty)} ok", err=True)
    if errors:
        sys.exit(Exit.ERROR)
