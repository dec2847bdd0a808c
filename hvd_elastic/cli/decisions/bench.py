"""`hvd-elastic bench`: how fast the network of a job is, and how well the job scales over it."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from hvd_elastic.cli.job_options import JobCommand, job_from, job_options
from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, render, show, table
from hvd_elastic.cli.size_options import SizeVisits, size_options, visited_profile
from hvd_elastic.system.plain_words import count_words

if TYPE_CHECKING:
    from hvd_elastic.client.bench.allreduce.allreduce_measurement import AllreduceRow
    from hvd_elastic.client.bench.allreduce.allreduce_world import AllreduceWorld
    from hvd_elastic.client.bench.nccl.nccl_output import Buffers, NcclOutput
    from hvd_elastic.client.bench.scale.scaling_efficiency import ScalingRow

_ALLREDUCE_COLUMNS: Final = (
    Column(title="size", key="size", right=True),
    Column(title="min", key="min", right=True),
    Column(title="median", key="median", right=True),
    Column(title="max", key="max", right=True),
    Column(title="algbw GB/s", key="algorithm", right=True),
    Column(title="busbw GB/s", key="bus", right=True),
)
_NCCL_COLUMNS: Final = (
    Column(title="size", key="size", right=True),
    Column(title="type", key="type"),
    Column(title="time", key="time", right=True),
    Column(title="algbw GB/s", key="algorithm", right=True),
    Column(title="busbw GB/s", key="bus", right=True),
    Column(title="wrong", key="wrong", right=True),
    Column(title="in-place busbw", key="in_place_bus", right=True),
    Column(title="wrong", key="in_place_wrong", right=True),
)
_SCALE_COLUMNS: Final = (
    Column(title="workers", key="workers", right=True),
    Column(title="nodes", key="nodes", right=True),
    Column(title="steps", key="steps", right=True),
    Column(title="step", key="step", right=True),
    Column(title="samples/s", key="speed", right=True),
    Column(title="ideal", key="ideal", right=True),
    Column(title="efficiency", key="efficiency", right=True),
    Column(title="fitted", key="fitted", right=True),
)


@click.group
def command() -> None:
    """Measure the network of a job, and how well the job scales over it."""


@command.command
@click.option(
    "--library",
    type=click.Choice(["horovod", "mpi4py"]),
    default="horovod",
    show_default=True,
    help="What sums. horovodrun starts processes of horovod, mpirun those of mpi4py.",
)
@click.option("--min-bytes", default="1Ki", show_default=True, metavar="SIZE", help="Smallest message.")
@click.option("--max-bytes", default="1Gi", show_default=True, metavar="SIZE", help="Largest: 64Ki, 16Mi, 1Gi.")
@click.option("--warm-up", type=click.IntRange(min=0), default=5, show_default=True, help="Of each size, not timed.")
@click.option(
    "--iterations", type=click.IntRange(min=1), default=20, show_default=True, help="Those timed, of each size."
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where messages are. Default: GPUs if there are any."
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Draw the bandwidths over the size.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the result there. On stdout, horovodrun puts the rank before each line.",
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, flag="--output")
def allreduce(
    *,
    library: str,
    min_bytes: str,
    max_bytes: str,
    warm_up: int,
    iterations: int,
    device: str | None,
    picture: Path | None,
    to: Path | None,
    output: Format,
) -> None:
    """Measure all-reduces of float32 by message size, in every process of a world. Rank 0 prints.

    horovodrun -np 2 hvd-elastic bench allreduce

    mpirun -np 2 hvd-elastic bench allreduce --library mpi4py
    """
    from hvd_elastic.client.bench.allreduce.allreduce_measurement import measure
    from hvd_elastic.client.bench.allreduce.allreduce_report import (
        allreduce_csv,
        allreduce_document,
        allreduce_picture,
        allreduce_summary,
    )
    from hvd_elastic.client.bench.allreduce.message_sizes import message_sizes
    from hvd_elastic.system.atomic_file import replace_file

    sizes = message_sizes(min_bytes, max_bytes)
    world = _world(library, device)
    found = measure(world, sizes, warm_up=warm_up, iterations=iterations, clock=time.perf_counter)
    rows, facts = list(found), world.facts
    if world.rank != 0:
        return
    written = {
        Format.TABLE: lambda: f"{table(_allreduce_rows(rows), _ALLREDUCE_COLUMNS)}{allreduce_summary(facts)}\n",
        Format.CSV: lambda: allreduce_csv(facts, rows),
    }
    document = allreduce_document(facts, rows, warm_up=warm_up, iterations=iterations)
    result = Result(data=document, written=written)
    if to:
        replace_file(to, render(result, output))
    else:
        show(result, output)
    if picture:
        replace_file(picture, allreduce_picture(facts, rows))


@command.command(cls=JobCommand)
@click.option("--parse", "log", type=click.File(), metavar="LOG", help="Read what such a job has printed (`-`: stdin).")
@click.option(
    "--expect", type=click.Choice(["efa", "ib", "socket"]), help="With --parse: fail if something else carried it."
)
@click.option("--min-bytes", default="1Ki", show_default=True, metavar="SIZE", help="Smallest message.")
@click.option("--max-bytes", default="1Gi", show_default=True, metavar="SIZE", help="Largest: 64Ki, 16Mi, 1Gi.")
@click.option("--warm-up", type=click.IntRange(min=0), default=5, show_default=True, help="Of each size, not timed.")
@click.option("--iterations", type=click.IntRange(min=1), default=20, show_default=True, help="Those timed.")
@click.option("--program", default="all_reduce_perf", show_default=True, metavar="PATH", help="Its path in the image.")
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.NAME)
@job_options
def nccl(
    *,
    file: str | None,
    flags: Mapping[str, object],
    log: IO[str] | None,
    expect: str | None,
    min_bytes: str,
    max_bytes: str,
    warm_up: int,
    iterations: int,
    program: str,
    output: Format,
) -> None:
    """Print an MPIJob that runs nccl-tests where the workers of a job would run, or read what it has said.

    FILE is a job description (`-`: standard input). Its image must have nccl-tests, built with MPI=1.

    hvd-elastic bench nccl job.yaml | kubectl apply -f -

    kubectl logs job/NAME-nccl-launcher | hvd-elastic bench nccl --parse - --expect efa
    """
    if log is not None:
        if file is not None or flags:
            raise click.UsageError("--parse reads a log: give it or a job, not both")
        _show_nccl_output(log.read(), log.name, expect, output)
        return
    if expect is not None:
        raise click.UsageError("--expect is of --parse: which network was used stands in the log")
    if output is Format.CSV:
        raise click.UsageError("-o csv is of --parse: a manifest is YAML or JSON")
    from hvd_elastic.client.bench.allreduce.message_sizes import message_sizes
    from hvd_elastic.client.bench.nccl.nccl_job import NcclRun, nccl_job

    sizes = message_sizes(min_bytes, max_bytes)
    run = NcclRun(smallest=sizes[0], largest=sizes[-1], iterations=iterations, warm_up=warm_up, program=program)
    manifest = nccl_job(job_from(file, flags), run)
    show(of_manifests([manifest]), Format.YAML if output is Format.TABLE else output)


def _show_nccl_output(text: str, source: str, expect: str | None, output: Format) -> None:
    """Print first, then fail: what was measured is worth seeing also where the wrong network carried it."""
    from hvd_elastic.client.bench.nccl.nccl_network import Network, check_network
    from hvd_elastic.client.bench.nccl.nccl_output import read_nccl_output
    from hvd_elastic.client.bench.nccl.nccl_report import WrongNumbersError, nccl_csv, nccl_document, nccl_summary

    if output is Format.NAME:
        raise click.UsageError("-o name is of the manifest: a log has no name")
    found = read_nccl_output(text, source=source)
    written = {
        Format.TABLE: lambda: f"{table(_nccl_rows(found), _NCCL_COLUMNS)}{nccl_summary(found)}\n",
        Format.CSV: lambda: nccl_csv(found),
    }
    show(Result(data=nccl_document(found), written=written), output)
    if found.wrong:
        wrong = count_words(found.wrong, "wrong number")
        raise WrongNumbersError(f"{source}: {wrong}: how fast it was does not matter")
    if expect is not None:
        check_network(found.networks, Network(expect))


def _nccl_rows(output: "NcclOutput") -> list[dict[str, object]]:
    from hvd_elastic.client.bench.allreduce.message_sizes import binary

    def buffers(found: "Buffers", prefix: str = "") -> dict[str, object]:
        return {f"{prefix}bus": found.bus_gb_per_second, f"{prefix}wrong": found.wrong}

    return [
        {
            "size": binary(row.size),
            "type": row.type,
            "time": _duration(row.out_of_place.microseconds / 1e6),
            "algorithm": row.out_of_place.algorithm_gb_per_second,
            **buffers(row.out_of_place),
            **buffers(row.in_place, "in_place_"),
        }
        for row in output.rows
    ]


@command.command
@size_options
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Draw samples per second over workers, beside ideal scaling.",
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, flag="--output")
def scale(*, picture: Path | None, output: Format, **asked: Any) -> None:
    """Say how well a job that runs in a cluster scales: samples per second at some sizes, beside ideal scaling.

    With --sizes the job is scaled to each of them in turn, and then to the number that it had, also on Ctrl-C. Without
    them the sizes count that it has had.
    """
    from hvd_elastic.client.bench.scale.scaling_efficiency import scaling_rows
    from hvd_elastic.client.bench.scale.scaling_report import formula, scaling_csv, scaling_document, scaling_picture
    from hvd_elastic.client.profile.profile_text import profile_text
    from hvd_elastic.system.atomic_file import replace_file

    visits = SizeVisits(**asked)
    profile = visited_profile(visits)
    rows = scaling_rows(profile, visits.sizes)

    def text() -> str:
        return (
            f"{profile_text(profile, table(_scale_rows(rows), _SCALE_COLUMNS))}{formula(profile.model.fit.step_time)}\n"
        )

    written = {Format.TABLE: text, Format.CSV: lambda: scaling_csv(rows)}
    show(Result(data=scaling_document(profile, rows), written=written), output)
    if picture:
        replace_file(picture, scaling_picture(profile, rows))


def _scale_rows(rows: "Sequence[ScalingRow]") -> list[dict[str, object]]:
    return [
        {
            "workers": row.workers,
            "nodes": row.nodes,
            "steps": row.steps,
            "step": f"{row.step_seconds:.4g} s",
            "speed": f"{row.samples_per_second:.4g}",
            "ideal": f"{row.ideal_samples_per_second:.4g}",
            "efficiency": f"{row.efficiency:.0%}",
            "fitted": f"{row.fitted_samples_per_second:.4g}",
        }
        for row in rows
    ]


def _world(library: str, device: str | None) -> "AllreduceWorld":
    if library == "horovod":
        from hvd_elastic.client.bench.allreduce.horovod_world import HorovodWorld

        return HorovodWorld(device)
    if device == "cuda":
        raise click.UsageError("--device cuda is of --library horovod: with mpi4py messages are in main memory")
    from hvd_elastic.client.bench.allreduce.mpi_world import MpiWorld

    return MpiWorld()


def _allreduce_rows(rows: "list[AllreduceRow]") -> list[dict[str, str]]:
    from hvd_elastic.client.bench.allreduce.message_sizes import binary

    found = [row.document() for row in rows]
    return [
        {
            "size": binary(int(row["bytes"])),
            "min": _duration(row["min_seconds"]),
            "median": _duration(row["median_seconds"]),
            "max": _duration(row["max_seconds"]),
            "algorithm": f"{row['algorithm_gb_per_second']:.3g}",
            "bus": f"{row['bus_gb_per_second']:.3g}",
        }
        for row in found
    ]


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"
