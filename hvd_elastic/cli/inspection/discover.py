"""`hvd-elastic discover`: the sidecar's decision, shown at a terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.mpijob.contract import ENV_JOB, ENV_NAMESPACE, HvdElasticError

if TYPE_CHECKING:
    from hvd_elastic.discovery.discover_once import DiscoveryResult

_COLUMNS = tuple(Column(title=key, key=key) for key in ("host", "pod", "address", "slots", "status"))


class DiscoverTimeoutError(HvdElasticError):
    """The cluster did not answer within `--timeout`."""


@click.command()
@click.option("--job", "-j", envvar=ENV_JOB, required=True, help="Name of the MPIJob.")
@click.option("--namespace", "-n", envvar=ENV_NAMESPACE, help="Its namespace; by default the context's.")
@click.option("--context", help="Of the kubeconfig; by default the current one.")
@click.option("--api-version", type=click.Choice(["v2beta1", "v1"]), default="v2beta1", show_default=True,
              help="Of the MPIJob, in the group kubeflow.org.")  # fmt: skip
@click.option("--slots", type=click.IntRange(min=1), help="Processes per worker; by default the MPIJob's.")
@click.option("--min-workers", type=click.IntRange(min=1), default=1, show_default=True,
              help="With fewer usable workers, the job is reported as short.")  # fmt: skip
@click.option("--reach/--no-reach", default=False, show_default=True,
              help="Probe the workers too; only works where their pods can be reached.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              metavar="SECONDS", help="Give up after this time, with exit code 1.")  # fmt: skip
@output_option(Format.TABLE, Format.JSON, Format.NAME, flag="--output")
def command(
    *,
    job: str,
    namespace: str | None,
    context: str | None,
    api_version: str,
    slots: int | None,
    min_workers: int,
    reach: bool,
    timeout: float,
    output: Format,
) -> None:
    """Show which workers of a job may be used, in the order of ranks, and why the others may not."""
    from hvd_elastic.client.connection.login_lookup import discovery_access
    from hvd_elastic.discovery.discover_once import discover_once

    with _at_most(timeout):
        access, default_namespace = discovery_access(context)
        found = discover_once(
            access,
            job=job,
            namespace=namespace or default_namespace,
            version=api_version,
            slots=slots,
            min_workers=min_workers,
            reach=reach,
        )
    result = Result(
        rows=list(_rows(found)),
        columns=_COLUMNS,
        data=_json(found),
        names=[f"pod/{host.pod}" for host in found.eligible.hosts],
    )
    show(result, output)
    if output is Format.TABLE:
        _print_notes(found)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End what is in it after this time, whatever it waits for: the API server, a worker, or a program that logs in.

    Raises DiscoverTimeoutError.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise DiscoverTimeoutError(
            f"no answer in {seconds:g} s: see that the API server can be reached and that your login needs no answer "
            "from you, or give it more time with --timeout"
        )

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _json(found: "DiscoveryResult") -> dict[str, Any]:
    eligible = found.eligible
    return {
        "job": found.job,
        "namespace": found.namespace,
        "uid": found.uid,
        "ended": found.ended or None,
        "short": found.is_short,
        "nodesRead": found.nodes_read,
        "hosts": [
            {"rank": rank, "pod": host.pod, "address": host.address, "slots": host.slots, "alias": host.alias}
            for rank, host in enumerate(eligible.hosts)
        ],
        "leftOut": [{"pod": out.pod, "reason": out.reason, "detail": out.detail} for out in eligible.left_out],
        "atRisk": list(eligible.at_risk),
    }


def _rows(found: "DiscoveryResult") -> Iterator[dict[str, Any]]:
    eligible = found.eligible
    for rank, host in enumerate(eligible.hosts):
        status = "usable, its node may go soon" if host.pod in eligible.at_risk else "usable"
        yield {"host": rank, "pod": host.pod, "address": host.address, "slots": host.slots, "status": status}
    for out in eligible.left_out:
        yield {"pod": out.pod, "status": f"{out.reason}: {out.detail}".removesuffix(": ")}


def _print_notes(found: "DiscoveryResult") -> None:
    if found.ended:
        say(f"the job has ended ({found.ended.lower()}): no launcher uses its workers any more")
    elif found.is_short:
        say(f"short: {len(found.eligible.hosts)} usable, fewer than the min workers")
    if not found.nodes_read:
        say("nodes may not be read: draining and spot nodes are not recognized")
