"""What durable checkpoints cost at an interval that follows the job's own history, over recorded spot traces.

    python -m benchmarks.checkpoint_interval [--traces ../shared/traces] [--draws 3]

Reads `spot_skypilot.csv` (skypilot-org/spot-traces), `spot_bamboo_events.csv`, `spot_gcloud_bamboo.csv`
(uclasystem/bamboo) and `spot_parcae_segments.csv` (JF-D/Parcae): machines available over time. A job trains while there
is one; when the last one goes, so does every copy of the state in memory. What a loss costs is the training since the
beginning of the last checkpoint that was durable by then. SkyPilot's traces are sampled each five minutes: each loss is
put at a random moment of its five minutes, the same for all intervals; the figures are means over the draws.

`offline optimum`: for each trace the fixed interval that costs least on it, found with hindsight; where nothing is lost
that is none at all. `auto`: hvd_elastic/policy/checkpoint_interval.py, which at each checkpoint knows what the job has
seen so far. Cost: training time that checkpoints take plus training that losses undo, by the time in which machines
were there. The bound is 1.10 times the offline optimum's cost, over all traces together.
"""

import argparse
import csv
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.policy.checkpoint_interval import PRIOR_SECONDS, LossHistory, checkpoint_seconds

FILES = {
    "spot_skypilot.csv": "available",
    "spot_gcloud_bamboo.csv": "available",
    "spot_bamboo_events.csv": "nodes_after",
    "spot_parcae_segments.csv": "nodes_after",
}
SAMPLE_SECONDS = 300.0
BOUND = 1.10
COSTS = ((0.05, 2.0), (0.5, 10.0), (2.0, 20.0), (10.0, 60.0))
"""What a checkpoint takes from training, and how long until it is durable, in seconds."""
GRID = [10.0 * 1.12**step for step in range(80)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A time in which at least one machine was there."""

    seconds: float
    is_lost: bool
    """Whether the last machine went at its end; else the trace ends."""


Trace = tuple[Life, ...]
Interval = Callable[[LossHistory], float]


def read_traces(folder: Path) -> Iterator[tuple[str, list[tuple[float, int]]]]:
    """Each trace's name, and machines over time."""
    for name, column in FILES.items():
        found: dict[str, list[tuple[float, int]]] = defaultdict(list)
        if (folder / name).exists():
            with (folder / name).open() as file:
                for row in csv.DictReader(file):
                    found[row["trace"]].append((float(row["t_s"]), int(row[column])))
        yield from found.items()


def lives(machines: list[tuple[float, int]], draw: random.Random) -> Trace:
    """The lives of one trace; each loss is at a random moment of the sample before it is seen."""
    found, since = [], None
    for time, available in machines:
        if available and since is None:
            since = time
        elif not available and since is not None:
            seen = time - since
            found.append(Life(seconds=seen - draw.uniform(0, min(SAMPLE_SECONDS, seen)), is_lost=True))
            since = None
    if since is not None:
        found.append(Life(seconds=machines[-1][0] - since, is_lost=False))
    return tuple(found)


def cost_of(trace: Trace, interval: Interval, *, cost: float, save: float) -> float:
    """Seconds that checkpoints take and that losses undo."""
    total = trained = 0.0
    losses = 0
    for life in trace:
        began = durable = 0.0
        while True:
            began += interval(LossHistory(trained_seconds=trained + began, losses=losses))
            if began >= life.seconds:
                break
            total += cost
            if began + save <= life.seconds:
                durable = began
        if life.is_lost:
            total += life.seconds - durable
            losses += 1
        trained += life.seconds
    return total


def fixed_cost(trace: Trace, seconds: float, *, cost: float, save: float) -> float:
    """The same at a fixed interval, which is at least the time of a save."""
    total = 0.0
    for life in trace:
        total += cost * (math.ceil(life.seconds / seconds) - 1)
        if life.is_lost:
            total += life.seconds - seconds * max(0, math.floor((life.seconds - save) / seconds))
    return total


def best_fixed_cost(draws: list[Trace], *, cost: float, save: float) -> float:
    """The mean cost at the interval that is best for this trace; 0 if nothing was lost: no checkpoint is best then."""
    if not any(life.is_lost for life in draws[0]):
        return 0.0
    return min(mean_fixed(draws, each, cost=cost, save=save) for each in GRID if each >= save)


def mean_fixed(draws: list[Trace], seconds: float, *, cost: float, save: float) -> float:
    return sum(fixed_cost(one, seconds, cost=cost, save=save) for one in draws) / len(draws)


def compare(traces: dict[str, list[Trace]], *, cost: float, save: float) -> tuple[float, float, float, float]:
    """Sums over all traces: at the optimum, with auto, at 60 s and at 300 s."""

    def auto(history: LossHistory) -> float:
        return checkpoint_seconds(history, cost_seconds=cost, save_seconds=save)

    best = online = 0.0
    for draws in traces.values():
        best += best_fixed_cost(draws, cost=cost, save=save)
        online += sum(cost_of(one, auto, cost=cost, save=save) for one in draws) / len(draws)
    fixed = [
        sum(mean_fixed(draws, max(seconds, save), cost=cost, save=save) for draws in traces.values())
        for seconds in (60.0, 300.0)
    ]
    return best, online, fixed[0], fixed[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of the recorded traces")
    parser.add_argument("--draws", type=int, default=3, help="random moments for each loss")
    flags = parser.parse_args()
    machines = dict(read_traces(flags.traces))
    if not machines:
        print(f"skipped: there is no trace in {flags.traces}")
        return 0
    record = Record(name="checkpoint_interval", question="How often should a job store a checkpoint?")
    traces = {
        name: [lives(found, random.Random(f"{name} {draw}")) for draw in range(flags.draws)]
        for name, found in machines.items()
    }
    up = sum(life.seconds for draws in traces.values() for life in draws[0])
    losses = {name: sum(life.is_lost for life in draws[0]) for name, draws in traces.items()}
    between = [sum(life.seconds for life in traces[name][0]) / count for name, count in losses.items() if count]
    rows: list[list[Value]] = []
    worst = 0.0
    for cost, save in COSTS:
        best, *others = compare(traces, cost=cost, save=save)
        rows.append([cost, save, best / up, *(figure for each in others for figure in (each / up, each / best))])
        worst = max(worst, others[0] / best)
    ways = ("auto", "every 60 s", "every 300 s")
    record.add(
        Table(
            name="checkpoint-interval",
            title=(
                f"Share of training time that checkpoints and losses cost: {len(traces)} traces, {up / 3600:.0f} h with"
                f" a machine, {sum(losses.values())} losses of all, in {len(between)} traces; median of their mean"
                f" times between losses {median(between) / 3600:.1f} h (prior {PRIOR_SECONDS / 3600:.1f} h)"
            ),
            columns=(
                Column(title="a checkpoint costs, s", format=".2f"),
                Column(title="durable after, s", format=".0f"),
                Column(title="offline optimum", format=".3%"),
                *(
                    column
                    for way in ways
                    for column in (Column(title=way, format=".3%"), Column(title="of the optimum", format=".2f"))
                ),
            ),
            rows=rows,
        )
    )
    what = "cost of checkpoints and losses, as a share of the offline optimum's, at the worst"
    record.promise(Aim(what=what, bound=BOUND, measured=worst))
    record.write()
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
