"""What ranks that wait for others take from them: Horovod's own wait beside that of our build.

    python -m benchmarks.waiting_ranks [--ranks 2 3 4] [--computes 0 5 50] [--seconds 2] [--late 2] [--rounds 3]

Real Horovod processes over Gloo, which `hvd-elastic launch` starts on this machine, with one thread each; the two ways
take turns. Each step takes some milliseconds of CPU, and then averages a thousand numbers. At the end all wait for
rank 0, which sleeps. With more ranks than cores a rank that waits can keep one from getting on that it waits for.
"""

import argparse
import itertools
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.report.record import Column, Record, Table, Value
from testbed.local.training import training

WORKER: Final = Path(__file__).with_name("_waiting_rank.py")
WAYS: Final = ("Horovod's", "our build's")

Told = dict[tuple[int, str], list[dict[str, Any]]]
"""What ranks have told of their steps, or of the late one, by ranks and way."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--computes", type=float, nargs="+", default=[0.0, 5.0, 50.0], help="milliseconds of a step")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a rank computes for each of them")
    parser.add_argument("--late", type=float, default=2.0, help="seconds for which all wait for rank 0")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    steps: Told = defaultdict(list)
    late: Told = defaultdict(list)
    for number, ranks, way in itertools.product(range(given.rounds), given.ranks, WAYS):
        print(f"round {number + 1} of {given.rounds}: {ranks} ranks, {way} wait", flush=True)
        step, last = measured(ranks, way, given)
        steps[ranks, way] += step
        late[ranks, way] += last
    record = Record(name="waiting_ranks", question="What do ranks that wait take from those they wait for?")
    record.add(step_table(steps, given.ranks, given.computes))
    record.add(late_table(late, given.ranks))
    record.write()


def measured(ranks: int, way: str, given: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the ranks of one job have told."""
    arguments = [f"--seconds={given.seconds}", f"--late={given.late}", "--computes", *map(str, given.computes)]
    spinning = ["--spinning"] if way == WAYS[0] else []
    with tempfile.TemporaryDirectory(prefix="bench-waiting-") as folder, training(Path(folder)) as job:
        job.offer(*(f"h{number}" for number in range(ranks)))
        job.launch("-np", str(ranks), script=WORKER, arguments=[*spinning, *arguments])
        if job.ends() != 0:
            raise RuntimeError(f"the job failed:\n{job.said()}")
        return job.written("step"), job.written("late")


def step_table(told: Told, ranks: Sequence[int], computes: Sequence[float]) -> Table:
    def row(size: int, computed: float) -> list[Value]:
        cells: list[Value] = [size, computed]
        for figure, way in itertools.product(("ms", "cpu_ms"), WAYS):
            cells.append(statistics.median(each[figure] for each in told[size, way] if each["computes"] == computed))
        return cells

    titles = [f"{what}, {way} wait" for what in ("a step, ms", "CPU of a rank, ms") for way in WAYS]
    return Table(
        name="waiting-steps",
        title="Steps of ranks that wait for each other",
        columns=(
            Column(title="ranks"),
            Column(title="computes, ms", format=".0f"),
            *(Column(title=title, format=".1f") for title in titles),
        ),
        rows=[row(size, computed) for size, computed in itertools.product(ranks, computes)],
        note="Medians over ranks and rounds.",
    )


def late_table(told: Told, ranks: Sequence[int]) -> Table:
    def cores(size: int, way: str) -> float:
        waited = [each for each in told[size, way] if each["rank"] != 0]
        return statistics.median(float(each["cpu"]) / float(each["seconds"]) for each in waited)

    return Table(
        name="waiting-late",
        title="Cores that a rank takes while it waits for one that sleeps",
        columns=(Column(title="ranks"), *(Column(title=f"{way} wait", format=".2f") for way in WAYS)),
        rows=[[size, *(cores(size, way) for way in WAYS)] for size in ranks],
    )


if __name__ == "__main__":
    main()
