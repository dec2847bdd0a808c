"""`hvd-elastic operator-watchdog`: runs in the cluster, and restarts an MPI Operator that looks away."""

import signal
from pathlib import Path

import click

from hvd_elastic.cli.object_names import checked_name
from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT


@click.command
@click.option("--operator-namespace", required=True, callback=checked_name, help="Of the MPI Operator.")
@click.option("--operator-deployment", default="mpi-operator", show_default=True, callback=checked_name,
              help="Of the MPI Operator.")  # fmt: skip
@click.option("--period", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Seconds between looks.")
@click.option("--alive-file", type=click.Path(dir_okay=False, path_type=Path),
              help="Touch this file after each look, for a liveness probe.")  # fmt: skip
@click.option("--log-format", envvar=ENV_LOG_FORMAT, type=click.Choice(["text", "json"]), default="text",
              help="Log lines for people, or for a log collector.")  # fmt: skip
def command(
    *, operator_namespace: str, operator_deployment: str, period: float, alive_file: Path | None, log_format: str
) -> None:
    """Restart the MPI Operator when it has pods to make or delete and has done neither for a minute.

    At most once in half an hour, and not twice for a job that a restart has not helped. `hvd-elastic platform-kit`
    writes what runs it.
    """
    from threading import Event

    from hvd_elastic import logs
    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.decide.watchdog.watchdog import Watchdog

    logs.configure(log_format)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    watchdog = Watchdog(ClusterClient.connect(), namespace=operator_namespace, deployment=operator_deployment)
    watchdog.run(stop, period=period, alive=lambda: alive_file.touch() if alive_file else None)
