"""`hvd-elastic slow-nodes`: runs in the cluster, and keeps the successors of slow workers off their nodes."""

from typing import Any

import click

from hvd_elastic.cli.pods.controller_options import controller_options, run_controller


@click.command
@controller_options
def command(**options: Any) -> None:
    """Exclude the node of a slow worker from the pod template of its job, if it has `slow_workers: replace`.

    At most two nodes of a job, each for a day. `hvd-elastic platform-kit` writes what runs it.
    """
    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.decide.slow_nodes.slow_node_controller import SlowNodeController

    run_controller(SlowNodeController(ClusterClient.connect()).turn, **options)
