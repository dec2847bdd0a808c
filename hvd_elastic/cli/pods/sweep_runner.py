"""`hvd-elastic sweep-runner`: runs in the cluster beside the jobs of one sweep."""

import signal
import sys

import click

from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT

_SIGTERM_EXIT = 143
"""Not 0: a pod that is drained has not done its work, and its Job makes another."""


@click.command
@click.option("--sweep", required=True, help="Name of the sweep.")
@click.option("--at-once", type=click.IntRange(min=1), required=True, help="Most jobs that run at the same time.")
@click.option("--log-format", envvar=ENV_LOG_FORMAT, type=click.Choice(["text", "json"]), default="text",
              help="Log lines for people, or for a log collector.")  # fmt: skip
def command(*, sweep: str, at_once: int, log_format: str) -> None:
    """Resume the next job of a sweep when one ends, until all have ended. `hvd-elastic sweep --at-once` sets it up."""
    from hvd_elastic import logs
    from hvd_elastic.client.sweep.runner import SweepRunner
    from hvd_elastic.discovery.kube import credentials

    logs.configure(log_format)
    access, namespace = credentials.in_cluster(), credentials.own_namespace() or "default"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_SIGTERM_EXIT))
    SweepRunner(access, sweep=sweep, namespace=namespace, at_once=at_once).run()
