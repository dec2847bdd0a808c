"""`hvd-elastic sweep`: many jobs from one description, as one thing."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.changes.confirmation import confirm
from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options, job_cluster_options
from hvd_elastic.cli.default_command import GroupWithDefault
from hvd_elastic.cli.job_options import JobCommand, job_input, job_options, only_in
from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, say, show
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from hvd_elastic.client.sweep.grid import Point
    from hvd_elastic.client.sweep.sweep_plan import SweepPlan
    from hvd_elastic.client.sweep.sweep_table import SweepStatus

SUBMIT = "submit"


@click.group(cls=GroupWithDefault, default=SUBMIT)
def command() -> None:
    """Run one job with many values: `hvd-elastic sweep JOB.yaml --grid lr=0.1,0.01 --grid batch=256,512 --at-once 2`.

    Without a command it is `submit`.
    """


@command.command(SUBMIT, cls=JobCommand)
@click.option("--grid", multiple=True, metavar="NAME=A,B", help="Values of a key, or of an argument of the script.")
@click.option("--points", type=click.Path(path_type=Path), help="A YAML list of mappings, instead of a grid.")
@click.option("--at-once", type=click.IntRange(min=1), help="Most jobs that run at the same time; by default all.")
@job_cluster_options(
    namespace_help="Where the jobs go, unless the description says so itself; by default the context's.",
    as_help="Submit as somebody else, if you may.",
)
@click.option("--dry-run", type=click.Choice(["client", "server"]),
              help="Write nothing: `client` asks no cluster, `server` has it check all jobs.")  # fmt: skip
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
@job_options
def submit(
    *,
    file: str | None,
    flags: Mapping[str, object],
    grid: Sequence[str],
    points: Path | None,
    at_once: int | None,
    chosen: ChosenCluster,
    dry_run: str | None,
    output: Format,
) -> None:
    """Submit a job for each point of a grid.

    FILE is a job description (`-`: standard input); its name is the sweep's. A NAME of the grid is a key of the
    description (`batch.global`, `env.SEED`) or, if there is no such key, an argument of the script: `lr=0.1` appends
    `--lr 0.1` to the command. `arg:NAME` is always an argument. The same again changes nothing.
    """
    if dry_run == "client":
        given = job_input(file, flags)
        plan = _plan(given, grid, points, at_once, in_namespace=chosen.namespace, default=chosen.namespace)
        _show_submission(plan, frozenset(job.spec.name for job in plan.jobs), output)
        return
    from hvd_elastic.client.sweep.sweep_submission import submit_sweep

    cluster = chosen.connect()
    given = job_input(file, flags)
    plan = _plan(given, grid, points, at_once, in_namespace=chosen.namespace, default=cluster.namespace)
    done = submit_sweep(cluster.within(plan.base.namespace), plan, dry_run=dry_run == "server")
    _show_submission(plan, done.created, output)
    if dry_run:
        say("the cluster accepts it; nothing was written")


@command.command
@click.argument("sweep")
@click.option("--metric", default="loss", show_default=True, help="Name under which the script logs it.")
@click.option("--best", type=click.Choice(["min", "max"]), default="min", show_default=True, help="What is best.")
@cluster_options
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, flag="--output")
def status(*, sweep: str, metric: str, best: str, chosen: ChosenCluster, output: Format) -> None:
    """Compare the jobs of a sweep by a metric, the best first."""
    from hvd_elastic.client.sweep.sweep_table import Best, sweep_status

    cluster = chosen.connect()
    found = sweep_status(cluster, sweep, metric=metric, best=Best(best))
    rows = [
        {**row.point, " state": row.state, " step": row.step if row.step >= 0 else None,
         " metric": row.metrics.get(metric), " job": row.job}
        for row in found.rows
    ]  # fmt: skip
    own = [(" state", "state"), (" step", "step"), (" metric", metric), (" job", "job")]
    columns = [
        *_value_columns([row.point for row in found.rows]),
        *(Column(title=title, key=key) for key, title in own),
    ]
    names = [f"mpijob.kubeflow.org/{row.job}" for row in found.rows]
    show(Result(rows=rows, columns=columns, data=asdict(found), names=names), output)
    if output is Format.TABLE:
        click.echo(_summary(found, metric), err=True)


@command.command
@click.argument("sweep")
@cluster_options
def stop(*, sweep: str, chosen: ChosenCluster) -> None:
    """Suspend all jobs of a sweep that have not ended, and give no more turns until it is resumed."""
    from hvd_elastic.client.sweep.sweep_control import stop_sweep

    cluster = chosen.connect()
    done = stop_sweep(cluster, sweep, sleep=time.sleep)
    say(f"{sweep} is stopped; jobs suspended now: {len(done.changed)}")
    if done.changed and not done.durable:
        say("they have no `checkpoint`, so they will begin with their first step")


@command.command
@click.argument("sweep")
@cluster_options
def resume(*, sweep: str, chosen: ChosenCluster) -> None:
    """Let a sweep that was stopped go on. Each job continues from its durable checkpoint."""
    from hvd_elastic.client.sweep.sweep_control import resume_sweep

    cluster = chosen.connect()
    done = resume_sweep(cluster, sweep)
    how = "its runner gives turns" if done.runner else f"jobs resumed: {len(done.changed)}"
    say(f"{sweep} goes on; {how}")


@command.command
@click.argument("sweep")
@click.option("--volumes", is_flag=True, help="Delete the volumes that were made for the jobs too, with their data.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def delete(*, sweep: str, volumes: bool, yes: bool, chosen: ChosenCluster) -> None:
    """Delete all jobs of a sweep with everything beside them. Asks. Prints the name of each object that went."""
    from hvd_elastic.client.sweep.sweep_control import delete_sweep, plan_sweep_deletion

    cluster = chosen.connect()
    plan = plan_sweep_deletion(cluster, sweep)
    goes = ", ".join(job.name for job in plan.jobs) or "no job is left"
    say(f"{sweep} in namespace {cluster.namespace}: goes: {goes}")
    if not volumes and (stays := [str(part) for job in plan.jobs for part in job.volumes]):
        say(f"stays (--volumes deletes it): {', '.join(stays)}")
    confirm(f"Delete {count_words(len(plan.jobs), 'job')} of {sweep}?", yes=yes)
    for job in plan.jobs:
        if job.ending:
            say(f"{job.name}: waiting for {job.ending}")
    delete_sweep(cluster, plan, volumes=volumes, sleep=time.sleep, report=click.echo)


def _plan(
    given: tuple[str | Path | None, Mapping[str, object], Sequence[Problem]],
    grid: Sequence[str],
    file_of_points: Path | None,
    at_once: int | None,
    *,
    in_namespace: str | None,
    default: str | None,
) -> "SweepPlan":
    from hvd_elastic.client.sweep.grid import file_points, grid_points
    from hvd_elastic.client.sweep.sweep_plan import JobInput, plan_sweep

    if grid and file_of_points:
        raise click.UsageError("give --grid or --points, not both")
    source, overrides, problems = given[0], given[1], list(given[2])
    points: Sequence[Point] = ()
    try:
        points = file_points(file_of_points) if file_of_points else grid_points(grid)
    except InvalidInputError as error:
        problems += error.problems
    job = JobInput(
        source=source,
        overrides=overrides,
        defaults={"namespace": default} if default else {},
        also=only_in(in_namespace),
    )
    try:
        plan = plan_sweep(job, points, at_once=at_once)
    except InvalidInputError as error:
        raise InvalidInputError([*problems, *error.problems]) from None
    _raise(problems)
    return plan


def _raise(problems: Sequence[Problem]) -> None:
    if problems:
        raise InvalidInputError(problems)


def _show_submission(plan: "SweepPlan", created: frozenset[str], output: Format) -> None:
    from hvd_elastic.client.sweep.sweep_submission import manifests

    rows: list[dict[str, Any]] = []
    for place, job in enumerate(plan.jobs):
        start = ("waits" if plan.waits(place) else "now") if job.spec.name in created else "is there"
        rows.append({" job": job.spec.name, **job.point, " start": start})
    columns = [
        Column(title="job", key=" job"),
        *_value_columns([job.point for job in plan.jobs]),
        Column(title="start", key=" start"),
    ]
    table = Result(rows=rows, columns=columns)
    show(table if output is Format.TABLE else of_manifests(manifests(plan)), output)


def _value_columns(points: "Sequence[Point]") -> list[Column]:
    """A column for each name of the points. Columns of ours have keys that no name can be: they begin with a blank."""
    return [Column(title=name, key=name) for name in dict.fromkeys(name for point in points for name in point)]


def _summary(found: "SweepStatus", metric: str) -> str:
    states = Counter(row.state for row in found.rows)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    cap = f"; at most {found.at_once} at once" if found.at_once else ""
    stopped = "; stopped: hvd-elastic sweep resume goes on" if found.stopped else ""
    logged = sorted({name for row in found.rows for name in row.metrics})
    others = f"; logged: {', '.join(logged)}" if logged and metric not in logged else ""
    silent = [row.job for row in found.rows if row.reported_nothing]
    nothing = f"; reported nothing: {', '.join(silent)}" if silent else ""
    return f"{count_words(len(found.rows), 'job')}: {counts}{cap}{stopped}{others}{nothing}"
