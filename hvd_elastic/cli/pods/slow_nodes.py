"""`hvd-elastic slow-nodes`: runs in the cluster, and keeps the successors of slow workers off their nodes."""

import signal
from pathlib import Path

import click

from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT


@click.command
@click.option("--period", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Seconds between looks.")
@click.option("--alive-file", type=click.Path(dir_okay=False, path_type=Path),
              help="Touch this file after each look, for a liveness probe.")  # fmt: skip
@click.option("--log-format", envvar=ENV_LOG_FORMAT, type=click.Choice(["text", "json"]), default="text",
              help="Log lines for people, or for a log collector.")  # fmt: skip
def command(*, period: float, alive_file: Path | None, log_format: str) -> None:
    """Exclude the node of a slow worker from the pod template of its job, if it has `slow_workers: replace`.

    At most two nodes of a job, each for a day. `hvd-elastic platform-kit` writes what runs it.
    """
    from threading import Event

    from hvd_elastic import logs
    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.decide.slow_nodes.slow_node_controller import SlowNodeController

    logs.configure(log_format)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    controller = SlowNodeController(ClusterClient.connect())
    controller.run(stop, period=period, alive=lambda: alive_file.touch() if alive_file else None)
