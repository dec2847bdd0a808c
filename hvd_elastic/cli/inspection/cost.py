"""`hvd-elastic cost`: what a job has held, lent and lost, and what that cost."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.mpijob.contract import HvdElasticError

if TYPE_CHECKING:
    from hvd_elastic.client.report.bill import Bill

_COLUMNS = (
    Column(title="namespace", key="namespace"),
    Column(title="name", key="name"),
    Column(title="gpu-hours", key="gpu_hours", right=True),
    Column(title="lent", key="lent", right=True),
    Column(title="stalled", key="stalled", right=True),
    Column(title="idle", key="idle", right=True),
    Column(title="repeated", key="repeated", right=True),
    Column(title="cost", key="cost", right=True),
    Column(title="saved", key="saved", right=True),
    Column(title="unpriced", key="unpriced", right=True),
)


class NoLedgerError(HvdElasticError):
    """The job keeps no record of what it held."""


@click.command
@click.argument("job", required=False)
@click.option("--all", "all_jobs", is_flag=True, help="All jobs of the namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="All jobs of all namespaces.")
@cluster_options
@click.option(
    "--prices",
    "price_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with prices an hour by instance type; by default a small table that ships.",
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, flag="--output")
def command(
    *,
    job: str | None,
    all_jobs: bool,
    all_namespaces: bool,
    chosen: ChosenCluster,
    price_file: Path | None,
    output: Format,
) -> None:
    """Say what a job has held, lent to others, and lost to stalls and repeated steps, and what that cost.

    Machines whose price is not known are named, and not in the cost.
    """
    from hvd_elastic.client.object_reading import ObjectReading
    from hvd_elastic.client.report.bill import bill, bills
    from hvd_elastic.client.report.bill_text import bill_text, pricing_ways, record_notes
    from hvd_elastic.client.report.prices import read_prices

    if bool(job) == (all_jobs or all_namespaces):
        raise click.UsageError("name a job, or give --all or -A")
    prices = read_prices(price_file)
    cluster = chosen.connect()
    if job:
        found = bill(cluster, job, prices)
        if found is None:
            raise NoLedgerError(f"job {job} has no ledger, so nothing tells what it held: generate and apply it anew")
        written = {Format.TABLE: lambda: bill_text(found, prices)}
        show(Result(data=_plain(found), written=written), output)
        return
    left_out: list[str] = []
    reading = ObjectReading("MPIJob", left_out.append)
    found_bills = list(bills(cluster, prices, None if all_namespaces else cluster.namespace, reading))
    rows = [_row(one) for one in found_bills]
    show(Result(rows=rows, columns=_COLUMNS, data=[_plain(one) for one in found_bills]), output)
    for sentence in left_out:
        say(sentence)
    if output is Format.TABLE:
        held, cost, saved = (
            sum(getattr(one, name) for one in found_bills) for name in ("gpu_seconds", "cost", "saved")
        )
        say(f"jobs: {len(rows)}, {held / 3600:.2f} GPU-hours, {cost:.2f} {prices.currency}, saved {saved:.2f}")
        for way in pricing_ways(machine for one in found_bills for machine in one.machines):
            say(f"unpriced: {way}")
        for one in found_bills:
            for note in record_notes(one):
                say(f"{one.namespace}/{one.name}: {note}")


def _plain(bill: "Bill") -> dict[str, Any]:
    return {**asdict(bill), "machines": [asdict(machine) for machine in bill.machines], "saved": bill.saved}


def _row(bill: "Bill") -> dict[str, Any]:
    hours = {
        "gpu_hours": bill.gpu_seconds,
        "lent": bill.lent_gpu_seconds,
        "stalled": bill.stalled_gpu_seconds,
        "idle": bill.idle_gpu_seconds,
        "repeated": bill.repeated_gpu_seconds,
        "unpriced": bill.unpriced_gpu_seconds,
    }
    return {
        "namespace": bill.namespace,
        "name": bill.name,
        **{key: f"{seconds / 3600:.2f}" for key, seconds in hours.items()},
        "cost": f"{bill.cost:.2f} {bill.currency}",
        "saved": f"{bill.saved:.2f}",
    }
