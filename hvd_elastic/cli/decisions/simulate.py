"""`hvd-elastic simulate`: a cluster's day with these jobs, in several ways."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hvd_elastic.cli.decisions.day_options import day_from, day_options, take_day_flags
from hvd_elastic.cli.decisions.day_setup import DaySetup, day_facts, setup_remarks, tell_day
from hvd_elastic.cli.decisions.input_file import InputFile, fetch_speeds
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.cli.progress import progress_bar
from hvd_elastic.mpijob.contract import GPU_RESOURCE

if TYPE_CHECKING:
    from hvd_elastic.decide.simulate.autoscaling.inference_reserve import ReserveRule
    from hvd_elastic.decide.simulate.inputs.stall_settings import WayStalls
    from hvd_elastic.decide.simulate.outcome import DayOutcome
    from hvd_elastic.decide.simulate.simulation import Share

WAYS: Final = ("static", "stock", "restart", "ours", "oracle")
_COLUMNS: Final = (
    Column(title="job", key="job"),
    Column(title="way", key="way"),
    Column(title="goodput", key="goodput", right=True),
    Column(title="useful gpu-h", key="useful", right=True),
    Column(title="held gpu-h", key="held", right=True),
    Column(title="wait p50", key="p50", right=True),
    Column(title="wait p99", key="p99", right=True),
    Column(title="repeated", key="repeated_steps", right=True),
    Column(title="pauses", key="pauses", right=True),
    Column(title="paused", key="paused", right=True),
    Column(title="restarts", key="restarts", right=True),
    Column(title="ended", key="ended", right=True),
    Column(title="cost", key="cost", right=True),
)
_BOUGHT: Final = Column(title="bought gpu-h", key="bought", right=True)


def _convert(context: click.Context, _parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        from hvd_elastic.decide.simulate.traces.conversion import convert

        click.echo(convert(path), nl=False)
        context.exit()


@click.command
@click.argument("files", metavar="JOB.yaml...", nargs=-1, required=True, type=click.Path(path_type=Path))
@day_options
@click.option("--start", multiple=True, metavar="[JOB=]TIME", help="When a job is submitted: 90, 2h, 1h30m.")
@click.option("--copies", multiple=True, metavar="[JOB=]N", help="How many such jobs there are.")
@click.option(
    "--length",
    multiple=True,
    metavar="[JOB=]LENGTH",
    help="500000samples, 20000steps, or 6h at workers.max. Default: it trains all day.",
)
@click.option(
    "--speed",
    multiple=True,
    metavar="[JOB=]FILE",
    callback=fetch_speeds,
    help="How fast the job is over workers: what `profile -o json` printed, or CSV `workers,steps_per_s`. Or its URL.",
)
@click.option(
    "--samples-per-worker",
    type=click.FloatRange(min=0, min_open=True),
    default=100.0,
    show_default=True,
    help="Samples per second of one worker, of jobs without --speed.",
)
@click.option(
    "--loss",
    type=click.FloatRange(0, 100),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="What each worker more adds to the time of a sample, of jobs without --speed.",
)
@click.option(
    "--checkpoint-cost",
    multiple=True,
    metavar="[JOB=]TIME",
    help="For which training stands still at a durable checkpoint. Default: 0.1.",
)
@click.option("--weight", multiple=True, metavar="[JOB=]W", help="A job of weight 2 counts each gain twice.")
@click.option("--autoscale", is_flag=True, help="In the way `ours`: jobs share idle GPUs as `autoscale` has it.")
@click.option("--buffer", is_flag=True, help="In the way `ours`: a buffer has nodes bought for autoscale's reserve.")
@click.option("--exclude-slow", is_flag=True, help="In the way `ours`: the kit's `slow-nodes` runs.")
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), help="Only these ways. Default: all.")
@click.option(
    "--stalls",
    default="ours",
    show_default=True,
    metavar="ours|stock|FILE",
    help="What events cost: as measured for each way, stock's for all, or of a YAML file.",
)
@click.option("--stall", "stall_words", multiple=True, metavar="[WAY.]EVENT=SECONDS", help="One of them by hand.")
@click.option(
    "--prices",
    "price_file",
    type=InputFile(exists=True),
    help="YAML with prices an hour by instance type; by default a small table that ships.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Draw sizes over the day, and how long inference waited.",
)
@click.option("--choose", is_flag=True, help="Instead: which min, max, grace and interval the first job should have.")
@click.option(
    "--grid", multiple=True, metavar="KEY=A,B", help="With --choose: values of min, max, grace, every or jobs."
)
@click.option(
    "--waiting-limit",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="With --choose: how long inference may wait at p99. Default: 5 above the least.",
)
@click.option(
    "--convert",
    type=InputFile(),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_convert,
    help="Instead: print a trace that SkyPilot, Bamboo, Parcae or Alibaba published as CSV for --trace.",
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, flag="--output")
def command(
    *,
    files: tuple[Path, ...],
    autoscale: bool,
    buffer: bool,
    exclude_slow: bool,
    ways: Sequence[str],
    stalls: str,
    stall_words: Sequence[str],
    price_file: Path | None,
    picture: Path | None,
    choose: bool,
    grid: Sequence[str],
    waiting_limit: float | None,
    samples_per_worker: float,
    loss: float,
    output: Format,
    **flags: Any,
) -> None:
    """Simulate a cluster's day with these jobs, in several ways side by side.

    A day is a recorded trace, or made up from a seed. The ways: `static` size, `stock` elastic Horovod, `restart` from
    the checkpoint at each change, `ours`, and an `oracle` that loses nothing. Goodput is useful GPU-time of the
    GPU-time that inference left to the jobs. The same words give the same result.
    """
    from hvd_elastic.decide.simulate.inputs.job_plans import PlanWords, job_plans
    from hvd_elastic.decide.simulate.inputs.speed_curve import assumed_curve

    if not choose and (grid or waiting_limit is not None):
        raise click.UsageError("--grid and --waiting-limit need --choose")
    if choose and (picture or ways):
        raise click.UsageError("--choose simulates one way and draws nothing: leave --picture and --way out")
    if picture and not picture.parent.is_dir():
        raise click.BadParameter(f"there is no folder {picture.parent}", param_hint="--picture")
    if buffer and not autoscale:
        raise click.UsageError(
            "--buffer needs --autoscale, which leaves the reserve idle: training would fill the nodes that are bought "
            "for it, and more be bought without end"
        )
    day = day_from(take_day_flags(flags))
    if buffer and not day.node_group:
        raise click.UsageError("--buffer needs --buy-nodes: how many nodes may be bought for the reserve")
    plans = job_plans(files, PlanWords(**flags), assumed=assumed_curve(samples_per_worker, loss / 100))
    setup = DaySetup(
        day=day,
        plans=plans,
        stalls=_stalls(stalls, stall_words),
        share=_share(autoscale),
        reserve=_reserve(autoscale, buffer=buffer),
        exclude_slow=exclude_slow,
    )
    resource = _resource(setup)
    if choose:
        from hvd_elastic.cli.decisions.choice_report import choose_setting

        choose_setting(setup, grid=grid, waiting_limit=waiting_limit, output=output)
    else:
        _compare(setup, resource, ways=ways or WAYS, price_file=price_file, picture=picture, output=output)


def _stalls(source: str, words: Sequence[str]) -> "WayStalls":
    from hvd_elastic.decide.simulate.inputs.stall_settings import read_stalls, with_overrides
    from hvd_elastic.decide.simulate.stalls import MEASURED
    from hvd_elastic.decide.simulate.workload import Way

    match source:
        case "ours":
            found: WayStalls = MEASURED
        case "stock":
            found = dict.fromkeys(Way, MEASURED[Way.STOCK])
        case _:
            found = read_stalls(InputFile().convert(source, None, click.get_current_context()), MEASURED)
    return with_overrides(found, words)


def _share(autoscale: bool) -> "Share | None":
    """The decision of the autoscaler, which runs in a cluster too."""
    if not autoscale:
        return None
    from hvd_elastic.policy.sharing import share

    return share


def _reserve(autoscale: bool, *, buffer: bool) -> "ReserveRule | None":
    """That of the autoscaler in a cluster."""
    if not autoscale:
        return None
    from hvd_elastic.decide.autoscale.decision import QUANTILE
    from hvd_elastic.decide.simulate.autoscaling.inference_reserve import ReserveRule

    return ReserveRule(quantile=QUANTILE, buffer=buffer)


def _compare(
    setup: DaySetup,
    resource: str,
    *,
    ways: Sequence[str],
    price_file: Path | None,
    picture: Path | None,
    output: Format,
) -> None:
    from hvd_elastic.client.report.prices import read_prices
    from hvd_elastic.decide.simulate.report.day_bill import price_remark, priced
    from hvd_elastic.decide.simulate.report.day_comparison import as_plain, compared, comparison_csv
    from hvd_elastic.decide.simulate.report.day_picture import day_picture
    from hvd_elastic.system.atomic_file import replace_file

    prices = read_prices(price_file)
    remarks = [*setup_remarks(setup), price_remark(setup.day, prices, resource)]
    outcomes = [priced(outcome, setup.day, prices, resource) for outcome in _outcomes(setup, ways)]
    rows = compared(outcomes)
    facts = day_facts(setup.day)
    shown = as_plain(outcomes) if output in (Format.JSON, Format.YAML) else []  # a mapping for each change of a size
    data = {"day": facts, "remarks": remarks, "currency": prices.currency, "ways": shown}
    written = {Format.CSV: lambda: comparison_csv(rows)}
    tell_day(facts, remarks)
    side_by_side = sorted(rows, key=lambda row: [other.job for other in rows].index(row.job))
    columns = (*_COLUMNS, _BOUGHT) if setup.day.node_group else _COLUMNS
    show(
        Result(rows=[_shown(asdict(row)) for row in side_by_side], columns=columns, data=data, written=written), output
    )
    if picture:
        replace_file(picture, day_picture(outcomes))
        say(f"written: {picture}")


def _resource(setup: DaySetup) -> str:
    """What the GPUs of the day are called: all of its jobs share them."""
    resources = sorted({plan.spec.workers.gpu_resource for plan in setup.plans if plan.spec.workers.gpus})
    if len(resources) > 1:
        names = ", ".join(resources)
        raise click.UsageError(f"a day has GPUs of one resource, and these jobs ask for {names}: simulate them apart")
    return resources[0] if resources else GPU_RESOURCE


def _outcomes(setup: DaySetup, ways: Sequence[str]) -> list["DayOutcome"]:
    from hvd_elastic.decide.simulate.inputs.simulated_jobs import simulated_jobs
    from hvd_elastic.decide.simulate.simulation import simulate
    from hvd_elastic.decide.simulate.workload import Way

    jobs = [job for plan in setup.plans for job in simulated_jobs(plan)]
    wanted = [way for way in WAYS if way in ways]
    outcomes = []
    with progress_bar("simulate") as tell:
        for done, way in enumerate(wanted):

            def told(part: float, done: int = done, way: str = way) -> None:
                tell((done + part) / len(wanted), way)

            is_ours = way == Way.OURS
            outcomes.append(
                simulate(
                    setup.day,
                    jobs,
                    Way(way),
                    setup.stalls[Way(way)],
                    share=setup.share if is_ours else None,
                    reserve=setup.reserve if is_ours else None,
                    excludes_slow=setup.exclude_slow,
                    progress=told,
                )
            )
    return outcomes


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers as people read them."""
    from hvd_elastic.decide.simulate.time_of_day import clock_time

    return {
        **row,
        "goodput": f"{row['goodput']:.1%}",
        "useful": f"{row['useful_gpu_hours']:.1f}",
        "held": f"{row['held_gpu_hours']:.1f}",
        "bought": f"{row['bought_gpu_hours']:.1f}",
        "p50": f"{row['waiting_p50']:.1f} s" if row["inference_pods"] else None,
        "p99": f"{row['waiting_p99']:.1f} s" if row["inference_pods"] else None,
        "paused": f"{row['paused_seconds']:.0f} s",
        "ended": None if row["completed"] is None else clock_time(row["completed"]),
        "cost": None if row["cost"] is None else f"{row['cost']:.2f}",
    }
