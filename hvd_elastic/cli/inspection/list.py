"""`hvd-elastic list`: the jobs of a namespace, or of all."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from hvd_elastic.client.report.job_list import ListedJob

_NAMESPACE = Column(title="namespace", key="namespace")
_COLUMNS = (
    Column(title="name", key="name"),
    Column(title="state", key="state"),
    Column(title="size", key="size", right=True),
    Column(title="step", key="step", right=True),
    Column(title="wall", key="wall", right=True),
    Column(title="training", key="training", right=True),
    Column(title="gpu-hours", key="gpu_hours", right=True),
    Column(title="lent", key="lent_gpu_hours", right=True),
    Column(title="preemptions", key="preemptions", right=True),
)


@click.command
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces.")
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, flag="--output")
def command(*, chosen: ChosenCluster, all_namespaces: bool, output: Format) -> None:
    """List jobs: state, training workers of [min..max], wall time beside useful time, GPU-hours held and lent.

    The sums of all jobs are on stderr.
    """
    from hvd_elastic.client.object_reading import ObjectReading
    from hvd_elastic.client.report.job_list import list_job_states, total
    from hvd_elastic.client.report.words.time_words import date_words

    cluster = chosen.connect()
    left_out: list[str] = []
    reading = ObjectReading("MPIJob", left_out.append)
    jobs = list_job_states(cluster, None if all_namespaces else cluster.namespace, reading=reading)
    table = output is Format.TABLE
    result = Result(
        rows=[_row(job) for job in jobs] if table else (),
        columns=(_NAMESPACE, *_COLUMNS) if all_namespaces else _COLUMNS,
        data=None if table else [asdict(job) for job in jobs],
        names=[f"mpijob.kubeflow.org/{job.name}" for job in jobs],
    )
    show(result, output)
    for sentence in left_out:
        click.echo(sentence, err=True)
    if table:
        sums = total(jobs)
        say(
            f"jobs: {sums.jobs}, training: {sums.training} with {count_words(sums.workers, 'worker')}; "
            f"{sums.gpu_seconds / 3600:.1f} GPU-hours held, {sums.lent_gpu_seconds / 3600:.1f} lent, "
            f"preemptions: {sums.preemptions}"
        )
        for job in jobs:
            if job.counts_since is not None:
                since = date_words(job.counts_since)
                say(f"{job.namespace}/{job.name} counts since {since}: its record before is lost")


def _row(job: "ListedJob") -> dict[str, Any]:
    from hvd_elastic.client.report.words.time_words import duration_words

    return {
        "namespace": job.namespace,
        "name": job.name,
        "state": str(job.state),
        "size": f"{job.size} of [{job.min_workers}..{job.max_workers}]",
        "step": job.step if job.step >= 0 else None,
        "wall": duration_words(job.wall_seconds),
        "training": None if job.training_seconds is None else duration_words(job.training_seconds),
        "gpu_hours": None if job.gpu_seconds is None else f"{job.gpu_seconds / 3600:.1f}",
        "lent_gpu_hours": None if job.lent_gpu_seconds is None else f"{job.lent_gpu_seconds / 3600:.1f}",
        "preemptions": job.preemptions,
    }
