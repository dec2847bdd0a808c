"""What the dtype of gradients costs: bfloat16 goes over the network as float32, or as float16 if it is compressed.

    python -m benchmarks.gradient_dtypes [--ranks 2 3] [--elements 1000000] [--gradients 16] [--steps 10]

Real Horovod processes over Gloo, which `hvd-elastic launch` starts on this machine. They average the same numbers in
each way in turn. All ranks share the cores, and there is no network between them: what a slow network adds for twice
the bytes is not in these figures.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.report.record import Column, Record, Table
from testbed.local.training import training

WORKER: Final = Path(__file__).with_name("_averaging_rank.py")
WIRE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 4, "bfloat16, Compression.fp16": 2}
"""Of each number, by the way it goes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--elements", type=int, default=1_000_000, help="of each gradient")
    parser.add_argument("--gradients", type=int, default=16, help="that are on their way together")
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    told = {ranks: measured(ranks, given) for ranks in given.ranks}
    record = Record(name="gradient_dtypes", question="What does the dtype of gradients cost?")
    record.add(table(told, given.elements * given.gradients))
    record.write()


def measured(ranks: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """What the ranks of one job have told of their steps."""
    arguments = [f"--{name}={getattr(given, name)}" for name in ("elements", "gradients", "steps")]
    with tempfile.TemporaryDirectory(prefix="bench-dtypes-") as folder, training(Path(folder)) as job:
        job.offer(*(f"h{number}" for number in range(ranks)))
        job.launch("-np", str(ranks), script=WORKER, arguments=arguments)
        if job.ends() != 0:
            raise RuntimeError(f"the job failed:\n{job.said()}")
        return job.written("step")


def table(told: dict[int, list[dict[str, Any]]], numbers: int) -> Table:
    def median(ranks: int, way: str, figure: str) -> float:
        return statistics.median(float(each[figure]) for each in told[ranks] if each["way"] == way)

    return Table(
        name="gradient-dtypes",
        title=f"{numbers:,} gradients, averaged",
        columns=(
            Column(title="ranks"),
            Column(title="gradients"),
            Column(title="bytes of each on the way"),
            Column(title="ms", format=".0f"),
            Column(title="CPU of a rank, ms", format=".0f"),
        ),
        rows=[
            [ranks, way, size, median(ranks, way, "ms"), median(ranks, way, "cpu_ms")]
            for ranks in told
            for way, size in WIRE_BYTES.items()
        ],
        note="Medians over ranks and steps.",
    )


if __name__ == "__main__":
    main()
