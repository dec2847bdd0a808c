"""`hvd-elastic operator-role`: the right that the MPI Operator 0.8 lacks, which is applied once per cluster."""

import click

from hvd_elastic.cli.object_names import checked_name
from hvd_elastic.cli.output import Column, Format, of_manifests, output_option, show
from hvd_elastic.mpijob.manifests import operator_role

_COLUMNS = (Column(title="kind", key="kind"), Column(title="name", key="name"), Column(title="what for", key="for"))


@click.command
@click.option("-n", "--namespace", default=operator_role.NAMESPACE, show_default=True, callback=checked_name,
              help="The operator's namespace.")  # fmt: skip
@click.option("--service-account", default=operator_role.ACCOUNT, show_default=True, callback=checked_name,
              help="The operator's account.")  # fmt: skip
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, default=Format.YAML)
def command(*, namespace: str, service_account: str, output: Format) -> None:
    """Print the right that the MPI Operator 0.8 lacks: without it no suspended job is ever resumed.

    hvd-elastic operator-role | kubectl apply -f -

    If it was refused before, restart the operator: else it may wait for a quarter of an hour until it tries again.
    """
    manifests = operator_role.manifests(namespace=namespace, account=service_account)
    purposes = ("may update jobs/status", f"for {namespace}/{service_account}")
    rows = [
        {"kind": item["kind"], "name": item["metadata"]["name"], "for": purpose}
        for item, purpose in zip(manifests, purposes, strict=True)
    ]
    show(of_manifests(manifests, rows=rows, columns=_COLUMNS), output)
