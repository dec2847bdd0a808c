"""Whether `simulate` tells the truth: windows that `benchmarks.recorded_days` has played on a real cluster, simulated.

    python -m benchmarks.simulation_truth

Simulated are the same inference pods, with the stalls of `benchmarks.cluster` and `benchmarks.bursts`, so none comes
from these runs, and with the step times of the run itself, because they are the job's and not the simulator's. Aims:
goodput within 5%, inference waiting p99 within 20%.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.recorded_days import OUT
from benchmarks.replay.measured_window import Measured, goodput, repeated, unhindered
from benchmarks.replay.trace_window import SIZE, AskedGpus, way_played
from benchmarks.report.aim import Aim
from benchmarks.report.measurements import Measurements, last_measured
from benchmarks.report.record import Column, Table, Value
from benchmarks.systems.product import LAUNCH
from benchmarks.systems.stock import STOCK
from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord
from hvd_elastic.decide.simulate.outcome import DayOutcome
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.stalls import MEASURED
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way
from hvd_elastic.policy.job_demand import Speeds

BATCH: Final = 60
"""Samples of a step of the script that trains (testbed/cluster/scripts/paced.py)."""
LEAD_SECONDS: Final = 60.0
"""Simulated before the window, so that the job trains on all GPUs when it begins, as the real one does."""
WAYS: Final = {LAUNCH.name: Way.OURS, STOCK.name: Way.STOCK}
GOODPUT_AIM: Final = 0.05
WAITING_AIM: Final = 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One window with one system: what was predicted, and what was measured."""

    measured: Measured
    predicted_goodput: float
    predicted_repeated: int

    @property
    def goodput_apart(self) -> float:
        """How far the prediction is from what was measured."""
        return abs(self.predicted_goodput - goodput(self.measured))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    report(last_measured(OUT, Measured))


def compare(measured: Measured) -> Compared:
    """Predict what was measured."""
    before, predicted = (predict([measured], seconds) for seconds in (0.0, measured.seconds))
    return Compared(
        measured=measured,
        predicted_goodput=(predicted.useful - before.useful) / (predicted.given - before.given),
        predicted_repeated=sum(each.repeated_steps for each in predicted.jobs),
    )


def predict(windows: Sequence[Measured], seconds: float) -> DayOutcome:
    """So many seconds of each window, simulated one after the other, each after a lead without inference."""
    way, steps = WAYS[windows[0].system], unhindered(windows[0].steps)
    slowest = max(steps.values())
    job = SimulatedJob(
        name="elastic",
        min=1,
        start=SIZE,
        max=SIZE,
        speeds=Speeds((0.0, *(BATCH / steps.get(size, slowest) for size in range(1, SIZE + 1)))),
        samples_per_step=BATCH,
        checkpoint_every_seconds=None,
    )
    asks: list[AskedGpus] = []
    for number, window in enumerate(windows):
        begins = number * (LEAD_SECONDS + seconds)
        inside = [ask for ask in window.asks if ask["second"] < seconds]
        asks += [AskedGpus(second=begins, gpus=0)]
        asks += [AskedGpus(second=begins + LEAD_SECONDS + ask["second"], gpus=ask["gpus"]) for ask in inside]
    ends = len(windows) * (LEAD_SECONDS + seconds)
    node = NodeLife(name="spot", gpus=SIZE)
    pods = tuple(inference_pods(asks, ends, MEASURED[way]))
    day = Day(source="replayed windows", seconds=ends, nodes=(node,), pods=pods)
    return simulate(day, [job], way, MEASURED[way])


def inference_pods(asks: Sequence[AskedGpus], seconds: float, stalls: Stalls) -> Iterator[InferencePod]:
    """The Deployment's pods. Of those that run, its ReplicaSet deletes the youngest.

    The simulator lets a pod run for so long from when it runs; the Deployment ends it at a time, however late it began.
    """
    running: list[float] = []
    ended: list[tuple[float, float]] = []
    for ask in asks:
        while len(running) < ask.gpus:
            running.append(ask.second)
        while len(running) > ask.gpus:
            ended.append((running.pop(), ask.second))
    ended += [(created, seconds + 1) for created in running]
    waits = stalls.gpu_free + stalls.bind
    for number, (created, end) in enumerate(sorted(ended)):
        yield InferencePod(name=f"inference-{number}", gpus=1, created=created, seconds=max(0.1, end - created - waits))


def report(found: Measurements[Measured]) -> None:
    """Predicted beside measured: goodput of each window, waiting over all windows of a system."""
    measured = [one for one in found.parts if one.system in WAYS]
    if not measured:
        sys.exit(f"{OUT} has no records of {' or '.join(WAYS)}")
    record = found.record(name="simulation_truth", question="Does the simulator tell the truth?")
    shares = (Column(title="predicted", format=".1%"), Column(title="measured", format=".1%"))
    seconds = (Column(title="predicted", format=".2f"), Column(title="measured", format=".2f"))
    compared = [compare(one) for one in measured]
    record.add(
        Table(
            name="simulation-truth-goodput",
            title="Goodput and repeated steps of replayed windows on a real cluster",
            columns=(
                Column(title="window"),
                Column(title="played"),
                Column(title="system"),
                *shares,
                Column(title="steps repeated, predicted"),
                Column(title="measured"),
                Column(title="pods of inference"),
            ),
            rows=[_goodput_row(one) for one in compared],
        )
    )
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        groups.setdefault((one.system, way_played(one.window, one.seconds)), []).append(one)
    record.add(
        Table(
            name="simulation-truth-waiting",
            title="Seconds that inference waits, over all windows",
            columns=(
                Column(title="system"),
                Column(title="played"),
                *(Column(title=f"p50, {column.title}", format=column.format) for column in seconds),
                *(Column(title=f"p99, {column.title}", format=column.format) for column in seconds),
                Column(title=f"within {WAITING_AIM:.0%}"),
                Column(title="pods, predicted"),
                Column(title="measured"),
            ),
            rows=[[*group, *_waiting(windows)] for group, windows in groups.items()],
        )
    )
    what = "how far simulated goodput is from measured, the worst window"
    apart = max(one.goodput_apart for one in compared)
    record.promise(Aim(what=what, bound=GOODPUT_AIM, measured=apart, format=".1%"))
    record.write()


def _goodput_row(one: Compared) -> list[Value]:
    measured = one.measured
    return [
        measured.window,
        way_played(measured.window, measured.seconds),
        measured.system,
        one.predicted_goodput,
        goodput(measured),
        one.predicted_repeated,
        repeated(measured),
        len(measured.waits),
    ]


def _waiting(windows: Sequence[Measured]) -> list[Value]:
    """Of all windows of a system: of the few pods of a single one, p99 is the slowest."""
    predicted = predict(windows, windows[0].seconds).inference
    seen = InferenceRecord([wait for one in windows for wait in one.waits]).waiting()
    met = abs(predicted.p99 - seen.p99) <= WAITING_AIM * seen.p99
    return [predicted.p50, seen.p50, predicted.p99, seen.p99, "yes" if met else "no", predicted.pods, seen.pods]


if __name__ == "__main__":
    main()
