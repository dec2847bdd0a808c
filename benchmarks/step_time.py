"""How far a fitted step time is off, at sizes that it has not seen: measured tables of six models on five clusters.

    python -m benchmarks.step_time [--traces ../shared/traces]

Reads `throughput_pollux_sia.csv` (petuum/adaptdl's osdi21-artifact; siasosp23/artifacts): seconds of a step by nodes,
replicas and local batch. Left out are clusters with fewer than five sizes, and gpt_pmp, whose replicas are pipelines.

- all batches: each batch that was measured at a size is an observation. *Between*: each size but the smallest and the
  largest is held out in turn. *Beyond*: the three smallest sizes are seen, and all larger ones predicted.
- constant batch: the steps of one job, whose batch is divided over however many workers there are, one observation a
  size, on as few nodes as were measured. Beyond by how many times the largest size that was seen is exceeded: the
  doubts that a profile states are these (hvd_elastic/policy/step_time_fit.py).

"Ideal scaling" is fitted to the smallest size that was seen, and takes the all-reduce to cost nothing.
"""

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.report.aim import Aim, Outcome
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.policy.step_time import StepObservation, StepTime, fitted
from hvd_elastic.policy.step_time_fit import BETWEEN, BEYOND, BEYOND_ONE, quantile

TABLE = "throughput_pollux_sia.csv"
LEAST_SIZES = 5
BETWEEN_BOUND, BEYOND_BOUND = 0.08, 0.14
SAME_BATCH = 0.13
"""Local batches were measured on a grid: so far may one be from its share of a constant batch."""

Pairs = dict[tuple[str, str], list[StepObservation]]
Fit = Callable[[Sequence[StepObservation]], StepTime]


def read_pairs(path: Path) -> Pairs:
    """The observations of each model on each cluster."""
    pairs: Pairs = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["model"] != "gpt_pmp":
                pairs[row["model"], row["gpu_or_cluster"]].append(
                    StepObservation(
                        workers=int(row["replicas"]),
                        nodes=int(row["nodes"]),
                        samples=float(row["local_batch"]),
                        seconds=float(row["step_s"]),
                    )
                )
    return {key: found for key, found in pairs.items() if len(sizes_of(found)) >= LEAST_SIZES}


def sizes_of(observations: Iterable[StepObservation]) -> list[int]:
    return sorted({one.workers for one in observations})


def constant_batches(pairs: Pairs) -> Iterator[list[StepObservation]]:
    """For each pair up to three series by size: the middle and the largest batch of one worker, and four of those."""
    for observations in pairs.values():
        single = sorted({one.samples for one in observations if one.workers == 1})
        for batch in (single[len(single) // 2], single[-1], 4 * single[-1]):
            found: dict[int, tuple[int, float, StepObservation]] = {}
            for one in observations:
                off = abs(one.samples * one.workers / batch - 1)
                best = found.get(one.workers)
                if off < SAME_BATCH and (best is None or (one.nodes, off) < best[:2]):
                    found[one.workers] = one.nodes, off, one
            if len(found) >= LEAST_SIZES:
                yield [found[workers][2] for workers in sorted(found)]


def ideal(observations: Sequence[StepObservation]) -> StepTime:
    """What computing takes at the smallest size."""
    least = min(one.workers for one in observations)
    found = fitted([one for one in observations if one.workers == least])
    return StepTime(base=found.base, per_sample=found.per_sample)


def errors(fit: Fit, seen: Sequence[StepObservation], asked: Iterable[StepObservation]) -> list[tuple[float, float]]:
    """For each one asked: how many doublings it is beyond the largest size seen, and the relative error."""
    step_time, largest = fit(seen), max(one.workers for one in seen)
    return [
        (
            math.log2(one.workers / largest),
            abs(step_time.seconds(workers=one.workers, nodes=one.nodes, samples=one.samples) / one.seconds - 1),
        )
        for one in asked
    ]


def between(series: Iterable[list[StepObservation]], fit: Fit) -> list[float]:
    found: list[float] = []
    for observations in series:
        for size in sizes_of(observations)[1:-1]:
            rest = [one for one in observations if one.workers != size]
            found += [error for _, error in errors(fit, rest, (one for one in observations if one.workers == size))]
    return found


def beyond(series: Iterable[list[StepObservation]], fit: Fit, seen: int) -> list[tuple[float, float]]:
    found = []
    for observations in series:
        last = sizes_of(observations)[seen - 1]
        near = [one for one in observations if one.workers <= last]
        found += errors(fit, near, (one for one in observations if one.workers > last))
    return found


def told(found: Sequence[float]) -> tuple[Value, Value]:
    return (median(found), quantile(found, 0.9)) if found else (None, None)


def all_batches(pairs: Pairs) -> tuple[Table, tuple[Aim, Aim]]:
    """The first protocol, and what became of its bounds."""
    rows: list[list[Value]] = []
    for name, fit in (("fitted", fitted), ("ideal scaling", ideal)):
        inner = between(pairs.values(), fit)
        outer = [error for _, error in beyond(pairs.values(), fit, 3)]
        rows.append([name, *told(inner), *told(outer)])
    count = sum(map(len, pairs.values()))
    table = Table(
        name="step-time-all-batches",
        title=f"Relative error, all batches: {len(pairs)} pairs of model and cluster, {count} observations",
        columns=columns(_PROTOCOLS),
        rows=rows,
    )
    between_sizes, beyond_sizes = (table.figures(title, rows=("fitted",))[0] for title in _PROTOCOLS)
    what = "relative error of a fitted step time, median"
    return table, (
        Aim(what=f"{what}, between sizes that were seen", bound=BETWEEN_BOUND, measured=between_sizes, format=".3f"),
        Aim(what=f"{what}, beyond three of them", bound=BEYOND_BOUND, measured=beyond_sizes, format=".3f"),
    )


def constant_batch(pairs: Pairs) -> Table:
    """The second protocol."""
    series = list(constant_batches(pairs))
    rows: list[list[Value]] = []
    for name, fit in (("fitted", fitted), ("ideal scaling", ideal)):
        for seen in (1, 2, 3, 4) if fit is fitted else (1,):
            found = beyond([one for one in series if len(one) > seen], fit, seen)
            inner = between(series, fit) if seen == 3 or fit is ideal else []
            parts = [[error for far, error in found if low < far <= high] for low, high in _DOUBLINGS]
            rows.append([f"{name}, {seen} seen", *(figure for part in (inner, *parts) for figure in told(part))])
    for label, rule in (("stated by a profile", (BETWEEN, *BEYOND)), ("... of one size", (None, *BEYOND_ONE))):
        rows.append([label, *(figure for one in rule for figure in ((one.half, one.most) if one else (None, None)))])
    return Table(
        name="step-time-constant-batch",
        title=f"Relative error, constant batch: {len(series)} series of one job, {sum(map(len, series))} observations",
        columns=columns(_TITLES),
        rows=rows,
    )


def columns(titles: Sequence[str]) -> list[Column]:
    """The name of the fit, and for each title the median and the 90th percentile."""
    pairs = ((Column(title=title, format=".3f"), Column(title="p90", format=".3f")) for title in titles)
    return [Column(title="fit"), *(column for pair in pairs for column in pair)]


_PROTOCOLS = ("between", "beyond 3 sizes")
_TITLES = ("between", "up to 2x", "up to 4x", "up to 8x", "more")
_DOUBLINGS = ((0, 1), (1, 2), (2, 3), (3, math.inf))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of the recorded tables")
    path = parser.parse_args().traces / TABLE
    if not path.exists():
        print(f"skipped: there is no {path}")
        return 0
    record = Record(name="step_time", question="How far is a fitted step time off at sizes that were not seen?")
    pairs = read_pairs(path)
    table, aims = all_batches(pairs)
    record.add(table)
    record.add(constant_batch(pairs))
    record.promise(*aims)
    record.write()
    return 0 if all(aim.outcome is Outcome.MET for aim in aims) else 1


if __name__ == "__main__":
    sys.exit(main())
