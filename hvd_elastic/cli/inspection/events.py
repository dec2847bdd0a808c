"""`hvd-elastic events`: the story of one job."""

from dataclasses import asdict
from datetime import UTC, datetime

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Column, Format, Result, output_option, show

_COLUMNS = (
    Column(title="time", key="time"),
    Column(title="about", key="about"),
    Column(title="what", key="what"),
    Column(title="told by", key="teller"),
)


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """`90`, `90s`, `15m`, `2h`, `1d`, as kubectl has them."""
    if value is None:
        return None
    number, unit = (value[:-1], value[-1]) if value[-1:] in "smhd" else (value, "s")
    try:
        return float(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a duration such as 90s, 15m, 2h or 1d") from None


@click.command
@click.argument("job")
@cluster_options
@click.option("--since", callback=_seconds, metavar="DURATION", help="Only what is younger: 90s, 15m, 2h, 1d.")
@output_option(Format.TABLE, Format.JSON, Format.YAML, flag="--output")
def command(*, job: str, chosen: ChosenCluster, since: float | None, output: Format) -> None:
    """Tell the story of a job in order: who came, who left and why, what that cost, what the scheduler said."""
    from hvd_elastic.client.report.story import story

    cluster = chosen.connect()
    oldest = datetime.now(UTC).timestamp() - since if since is not None else 0.0
    told = [happening for happening in story(cluster, job) if happening.unix >= oldest]
    rows = [
        {
            "time": datetime.fromtimestamp(happening.unix).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            "about": happening.about,
            "what": happening.what + (f" ({happening.times} times)" if happening.times > 1 else ""),
            "teller": str(happening.teller),
        }
        for happening in told
    ]
    show(Result(rows=rows, columns=_COLUMNS, data=[asdict(happening) for happening in told]), output)
