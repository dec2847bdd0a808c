"""The options of verbs that measure a job at some sizes, and what they do with them."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.progress import progress_line

if TYPE_CHECKING:
    from hvd_elastic.client.profile.job_profile import JobProfile

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeVisits:
    """What was asked for: which job, at which sizes, and where it is."""

    job: str
    sizes: tuple[int, ...]
    """To be visited; none by default."""
    steps: int
    """At each of them."""
    batch: int | None
    batch_per_worker: int | None
    chosen: ChosenCluster


def size_options(command: _Command) -> _Command:
    """Adds the parameters of `SizeVisits`."""
    options = (
        click.argument("job"),
        click.option(
            "--sizes", callback=_sizes, metavar="N,N,...", help="First have it train with so many workers each."
        ),
        click.option("--steps", type=click.IntRange(min=10), default=50, show_default=True, help="At each of --sizes."),
        click.option("--batch", type=click.IntRange(min=1), help="Samples of a step over all workers."),
        click.option("--batch-per-worker", type=click.IntRange(min=1), help="The same of each worker."),
        cluster_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


def visited_profile(asked: SizeVisits) -> "JobProfile":
    """Have the job train at the sizes, and read its profile.

    Raises what `visit_sizes` and `profile_of_job` raise; UsageError for two batches.
    """
    from hvd_elastic.client.profile.profile_of_job import profile_of_job
    from hvd_elastic.client.profile.size_visits import visit_sizes
    from hvd_elastic.policy.job_speeds import StepBatch

    total, per_worker = asked.batch, asked.batch_per_worker
    if total and per_worker:
        raise click.UsageError("give --batch or --batch-per-worker, not both")
    cluster = asked.chosen.connect()
    if asked.sizes:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this wants the former size back, too
        with progress_line(asked.job) as report:
            visit_sizes(cluster, asked.job, asked.sizes, steps=asked.steps, report=report, sleep=time.sleep)
    given = StepBatch(total=total, per_worker=per_worker) if total or per_worker else None
    return profile_of_job(cluster, asked.job, batch=given)


def _sizes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    """`1,2,4`."""
    words = value.split(",") if value is not None else []
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise click.BadParameter(f"{value!r} is not a list of numbers of workers such as 1,2,4")
    return tuple(map(int, words))
