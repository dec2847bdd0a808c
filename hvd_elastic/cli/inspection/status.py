"""`hvd-elastic status`: the truth about one job."""

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Format, Result, output_option, show

if TYPE_CHECKING:
    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.client.report.job_status import JobStatus

_POLL_SECONDS = 2.0
_TIMED_OUT = 124
"""As the command `timeout` ends."""
_STATES = (
    "starting", "training", "waiting", "stalled", "unheard", "queued", "suspended", "succeeded", "exhausted", "failed"
)  # fmt: skip


@click.command
@click.argument("job")
@cluster_options
@click.option(
    "--wait-for", type=click.Choice(_STATES), help="Wait until it is in this state, or can no longer come to it."
)
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds to wait at most; by default for ever.")
@output_option(Format.TEXT, Format.WIDE, Format.JSON, Format.YAML, Format.NAME, default=Format.TEXT, flag="--output")
def command(*, job: str, chosen: ChosenCluster, wait_for: str | None, timeout: float | None, output: Format) -> None:
    """Say what a job does, who left it and why, what it waits for, and what that has cost.

    The exit code tells the state: 0 training or succeeded, 10 starting, 11 waiting, 12 stalled, 13 unheard, 14 queued,
    15 suspended, 20 failed, 21 exhausted. With --wait-for it is 0 once the state is reached, and 124 at the timeout.
    """
    from hvd_elastic.client.report.job_status import status
    from hvd_elastic.client.report.status_text import status_text

    cluster = chosen.connect()
    found = status(cluster, job)
    code = found.state.exit_code
    if wait_for:
        found, code = _wait(cluster, found, wait_for, timeout)
    result = Result(
        data=asdict(found),
        names=[f"mpijob.kubeflow.org/{found.name}"],
        written={
            Format.TEXT: lambda: status_text(found),
            Format.WIDE: lambda: status_text(found, wide=True),
        },
    )
    show(result, output)
    sys.exit(code)


def _wait(cluster: "ClusterClient", found: "JobStatus", wanted: str, timeout: float | None) -> tuple["JobStatus", int]:
    """The status when the state is reached or can no longer be, or the time is over, and the exit code."""
    from hvd_elastic.client.connection.cluster_errors import ClusterError
    from hvd_elastic.client.connection.long_wait import LongWait
    from hvd_elastic.client.report.job_status import status

    deadline = None if timeout is None else time.monotonic() + timeout
    wait, name = LongWait(), found.name
    while found.state != wanted:
        if found.state.is_final:
            return found, found.state.exit_code or 1
        left = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return found, _TIMED_OUT
        time.sleep(min(_POLL_SECONDS, left))
        try:
            found = wait.look(lambda: status(cluster, name), until=deadline)
        except ClusterError:
            if deadline is None or time.monotonic() < deadline:
                raise
    return found, 0
