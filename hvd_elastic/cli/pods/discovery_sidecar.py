"""`hvd-elastic discovery-sidecar`: runs beside the launcher."""

import os
import signal
from pathlib import Path

import click

from hvd_elastic.mpijob.contract import (
    DISCOVERY_METRICS_PORT,
    ENV_INCARNATION,
    ENV_JOB,
    ENV_LOG_FORMAT,
    ENV_MAX_WORKERS,
    ENV_MIN_WORKERS,
    ENV_NAMESPACE,
    ENV_OWNED,
    ENV_RUN_DIR,
    ENV_SLOTS,
    READY_PORT,
    RUN_DIR,
    SSH_KEY,
)
from hvd_elastic.policy.allowed_sizes import parse_sizes

POSITIVE = click.IntRange(min=1)


@click.command()
@click.option("--job", envvar=ENV_JOB, required=True, help="Name of the MPIJob.")
@click.option("--namespace", envvar=ENV_NAMESPACE, help="Its namespace; by default the pod's.")
@click.option("--min-workers", envvar=ENV_MIN_WORKERS, type=POSITIVE, required=True)
@click.option("--max-workers", envvar=ENV_MAX_WORKERS, type=POSITIVE, required=True)
@click.option("--sizes", metavar="N,N,...", type=parse_sizes, help="The only numbers of workers to offer. "
              "By default any: hvd-elastic launch knows the sizes itself.")  # fmt: skip
@click.option("--slots", envvar=ENV_SLOTS, type=POSITIVE, default=1, show_default=True, help="Processes per worker.")
@click.option("--api-version", type=click.Choice(["v2beta1", "v1"]), default="v2beta1", show_default=True,
              help="Of the MPIJob, in the group kubeflow.org.")  # fmt: skip
@click.option("--run-dir", envvar=ENV_RUN_DIR, type=click.Path(path_type=Path, file_okay=False), default=RUN_DIR,
              show_default=True, help="Folder shared with the launcher.")  # fmt: skip
@click.option("--settle", type=click.FloatRange(min=0), default=2.0, show_default=True,
              help="At most this many seconds the first list waits for workers about to be ready.")  # fmt: skip
@click.option("--at-risk", type=click.Choice(["keep", "spare", "omit"]), default="spare", show_default=True,
              help="Workers on cordoned nodes: keep, leave out if the others suffice, or leave out.")  # fmt: skip
@click.option("--offer-again", is_flag=True,
              help="Offer workers again that the launcher has not used: stock horovodrun misses changes.")  # fmt: skip
@click.option("--reap/--no-reap", default=True, show_default=True, help="Delete workers that ended, are lost or stuck.")
@click.option("--slow-workers", type=click.Choice(["report", "replace"]), default="report", show_default=True,
              help="What becomes of a worker whose rank is slow.")  # fmt: skip
@click.option("--stuck-after", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="Seconds after its grace period before a worker that is still Terminating is stuck.")  # fmt: skip
@click.option("--nodes/--no-nodes", default=True, show_default=True, help="Watch nodes, if that is allowed.")
@click.option("--pod-uid", envvar=ENV_INCARNATION, default="", help="Of the launcher's pod, of which this is a part.")
@click.option("--own", "owned", envvar=ENV_OWNED, multiple=True, metavar="PATH",
              help="API path of an object that shall be deleted with the job.")  # fmt: skip
@click.option("--ready-port", type=POSITIVE, default=READY_PORT, show_default=True)
@click.option("--metrics-port", type=click.IntRange(min=0), default=DISCOVERY_METRICS_PORT, show_default=True,
              help="/metrics, /healthz and /readyz.")  # fmt: skip
@click.option("--kubeconfig", is_flag=True, help="Log in by kubeconfig, not by the pod's service account.")
@click.option(
    "--log-format",
    envvar=ENV_LOG_FORMAT,
    type=click.Choice(["text", "json"]),
    default="text",
    help="Log lines for people, or for a log collector.",
)
def command(
    *,
    job: str,
    namespace: str | None,
    min_workers: int,
    max_workers: int,
    sizes: tuple[int, ...] | None,
    slots: int,
    api_version: str,
    run_dir: Path,
    settle: float,
    at_risk: str,
    offer_again: bool,
    reap: bool,
    slow_workers: str,
    stuck_after: float,
    nodes: bool,
    pod_uid: str,
    owned: tuple[str, ...],
    ready_port: int,
    metrics_port: int,
    kubeconfig: bool,
    log_format: str,
) -> None:
    """Keep the launcher's list of workers up to date, until SIGTERM.

    Options that are not given come from the environment; hvd_elastic.mpijob.contract has the names.
    """
    from hvd_elastic import logs
    from hvd_elastic.cli.pods.pod_user import enter_user
    from hvd_elastic.discovery import AtRisk
    from hvd_elastic.discovery.kube import credentials
    from hvd_elastic.discovery.sidecar.sidecar import Sidecar
    from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics, health_server
    from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
    from hvd_elastic.system import descriptors

    if min_workers > max_workers:
        raise click.UsageError(f"--min-workers {min_workers} is above --max-workers {max_workers}")
    logs.configure(log_format)
    descriptors.raise_limit()
    if kubeconfig:
        from hvd_elastic.client.connection.login_lookup import discovery_access

        access, default_namespace = discovery_access()
    else:
        access, default_namespace = credentials.in_cluster(), credentials.own_namespace() or "default"
    run_dir.mkdir(parents=True, exist_ok=True)
    enter_user(run_dir, os.getuid(), os.getgid())  # for the launcher's ssh, which has no host before the first list
    options = SidecarOptions(
        job=job,
        namespace=namespace or default_namespace,
        version=api_version,
        run_dir=run_dir,
        min_workers=min_workers,
        max_workers=max_workers,
        sizes=sizes or (),
        slots=slots,
        settle_seconds=settle,
        at_risk=AtRisk(at_risk),
        offer_again=offer_again,
        reap=reap,
        replace_slow=slow_workers == "replace",
        stuck_seconds=stuck_after,
        nodes=nodes,
        pod_uid=pod_uid,
        owned=owned,
        ready_port=ready_port,
        ssh_key=Path.home() / SSH_KEY,
    )
    metrics = Metrics()
    sidecar = Sidecar(options, access, metrics)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sidecar.stop())
    health = health_server(metrics, alive=lambda: sidecar.is_alive, ready=lambda: sidecar.is_ready, port=metrics_port)
    health.start()
    sidecar.run()
