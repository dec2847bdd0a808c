"""`hvd-elastic operator-watchdog`: runs in the cluster, and restarts an MPI Operator that looks away."""

from typing import Any

import click

from hvd_elastic.cli.object_names import checked_name
from hvd_elastic.cli.pods.controller_options import controller_options, run_controller


@click.command
@click.option("--operator-namespace", required=True, callback=checked_name, help="Of the MPI Operator.")
@click.option("--operator-deployment", default="mpi-operator", show_default=True, callback=checked_name,
              help="Of the MPI Operator.")  # fmt: skip
@controller_options
def command(*, operator_namespace: str, operator_deployment: str, **options: Any) -> None:
    """Restart the MPI Operator when it has pods to make or delete and has done neither for a minute.

    At most once in half an hour, and not twice for a job that a restart has not helped. `hvd-elastic platform-kit`
    writes what runs it.
    """
    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.decide.watchdog.watchdog import Watchdog

    watchdog = Watchdog(ClusterClient.connect(), namespace=operator_namespace, deployment=operator_deployment)
    run_controller(watchdog.turn, **options)
