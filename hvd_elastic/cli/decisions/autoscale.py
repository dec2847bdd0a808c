"""`hvd-elastic autoscale`: several jobs share the idle GPUs."""

import logging
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hvd_elastic.cli.object_names import checked_place
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT

if TYPE_CHECKING:
    from hvd_elastic.decide.autoscale.controller import CarriedOut
    from hvd_elastic.decide.autoscale.leadership import Leadership

log = logging.getLogger(__name__)

_COLUMNS = (
    Column(title="job", key="job"),
    Column(title="from", key="before", right=True),
    Column(title="to", key="workers", right=True),
    Column(title="reason", key="reason"),
    Column(title="not done", key="failure"),
)


@click.command
@click.option("--context", help="Of the kubeconfig; by default the current one.")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Of jobs; may be repeated. By default all.")
@click.option("--once", is_flag=True, help="Take one turn, print what was done, and end.")
@click.option("--dry-run", is_flag=True, help="Change nothing: say what would be done.")
@click.option("--period", type=click.FloatRange(min=1), default=10.0, show_default=True, help="Seconds between turns.")
@click.option("--quantile", type=click.FloatRange(0.5, 0.999), default=0.95, show_default=True,
              help="Share of 5-minute windows in which idle GPUs cover the rise of inference's demand.")  # fmt: skip
@click.option("--prometheus", metavar="URL", help="With --forecast: the server that knows inference's demand.")
@click.option("--forecast", metavar="PROMQL", help="GPUs that inference will soon hold in all.")
@click.option("--buffer", metavar="NAMESPACE/NAME", callback=checked_place,
              help="A CapacityBuffer whose replicas follow the reserve: a cluster autoscaler keeps nodes for it. "
                   "Its PodTemplate asks for one GPU.")  # fmt: skip
@click.option("--lease-namespace", help="Where its Lease and its ConfigMap are. By default its own.")
@click.option("--alive-file", type=click.Path(dir_okay=False, path_type=Path),
              help="Touch this file after each turn while the API server answers, for a liveness probe.")  # fmt: skip
@click.option("--log-format", envvar=ENV_LOG_FORMAT, type=click.Choice(["text", "json"]), default="text",
              help="Log lines for people, or for a log collector.")  # fmt: skip
@output_option(Format.TABLE, Format.JSON, Format.YAML, flag="--output")
def command(
    *,
    context: str | None,
    namespaces: Sequence[str],
    once: bool,
    dry_run: bool,
    period: float,
    quantile: float,
    prometheus: str | None,
    forecast: str | None,
    buffer: str | None,
    lease_namespace: str | None,
    alive_file: Path | None,
    log_format: str,
    output: Format,
) -> None:
    """Share idle GPUs among the jobs whose description has `autoscale`. One leads, however many run.

    It sets the number of workers that each job asks for, as `hvd-elastic scale` does, and the replicas of --buffer.
    """
    from hvd_elastic import logs
    from hvd_elastic.client.connection.cluster_client import ClusterClient
    from hvd_elastic.decide.autoscale.controller import Autoscaler
    from hvd_elastic.decide.autoscale.demand_store import DemandStore
    from hvd_elastic.decide.autoscale.forecast.prometheus_forecast import PrometheusForecast
    from hvd_elastic.decide.autoscale.leadership import Leadership
    from hvd_elastic.decide.autoscale.reserve_buffer import ReserveBuffer
    from hvd_elastic.decide.autoscale.state_reader import StateReader

    if (prometheus is None) != (forecast is None):
        raise click.UsageError("--prometheus and --forecast need each other")
    logs.configure(log_format)
    cluster = ClusterClient.connect(context=context)
    own = lease_namespace or cluster.namespace
    leadership = Leadership(cluster, namespace=own, identity=_identity())
    asked = PrometheusForecast(url=prometheus, query=forecast) if prometheus and forecast else None
    reader = StateReader(cluster, namespaces, forecast=asked.gpus if asked else lambda: 0, own_buffer=buffer or "")
    autoscaler = Autoscaler(
        cluster,
        reader,
        DemandStore(cluster, own),
        may_act=leadership.holds,
        quantile=quantile,
        buffer=ReserveBuffer(cluster, buffer) if buffer else None,
        dry_run=dry_run,
    )
    if dry_run:
        _show(autoscaler.turn(), output)
    elif once:
        if not leadership.attempt():
            raise click.ClickException(f"another autoscaler leads ({leadership.holder}): nothing was changed")
        try:
            _show(autoscaler.turn(), output)
        finally:
            leadership.release()
    else:
        _run(autoscaler.run, leadership, period, alive_file)


def _run(run: Callable[..., None], leadership: "Leadership", period: float, alive_file: Path | None) -> None:
    from threading import Event

    from hvd_elastic.system.background_threads import start_thread

    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    keeper = start_thread("lease", lambda: leadership.keep(stop), log=log, stopped=stop)

    def alive() -> None:
        """Who leads and who waits look at the Lease. Whom the API server does not answer may do so begun anew."""
        if alive_file and leadership.is_answered:
            alive_file.touch()

    try:
        run(stop, period=period, alive=alive)
    finally:
        stop.set()
        keeper.join()


def _identity() -> str:
    """As client-go's examples name a candidate: the host, which is the pod, and what no other has."""
    import socket
    import uuid

    return f"{socket.gethostname()}_{uuid.uuid4()}"


def _show(done: "Sequence[CarriedOut]", output: Format) -> None:
    rows = [
        {
            "job": one.decision.job.name,
            "before": one.decision.job.asked,
            "workers": one.decision.workers,
            "reason": one.decision.reason,
            "failure": one.failure or None,
        }
        for one in done
    ]
    show(Result(rows=rows, columns=_COLUMNS), output)
    if not rows:
        say("nothing to change")
